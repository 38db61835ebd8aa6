package workflows

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"gopkg.in/yaml.v3"
)

var (
	root   = filepath.Join("..", "..")
	github = filepath.Join(root, ".github")
)

// A workflow has what these tests check of a workflow. Other fields are errors.
type workflow struct {
	Name        string
	On          yaml.Node
	Permissions map[string]string
	Concurrency yaml.Node
	Jobs        map[string]job
}

type job struct {
	RunsOn      string `yaml:"runs-on"`
	Container   string
	Needs       string
	Timeout     int `yaml:"timeout-minutes"`
	Permissions map[string]string
	Env         map[string]string
	Steps       []step
}

type step struct {
	Name, Uses, Run, If string
	With                map[string]string
}

// decode reads a YAML file, in which each field has to be known.
func decode(t *testing.T, name string, v any) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	d := yaml.NewDecoder(bytes.NewReader(text))
	d.KnownFields(true)
	if err := d.Decode(v); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	if err := d.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		t.Errorf("%s: more than one document (%v)", name, err)
	}
	return string(text)
}

// workflows returns all workflows by the names of their files.
func workflows(t *testing.T) map[string]workflow {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(github, "workflows", "*"))
	if err != nil || len(names) < 3 {
		t.Fatalf("workflows %v, %v", names, err)
	}
	all := map[string]workflow{}
	for _, name := range names {
		var w workflow
		if text := decode(t, name, &w); strings.Contains(text, "secrets") {
			t.Errorf("%s uses a secret", name)
		}
		all[filepath.Base(name)] = w
	}
	return all
}

var formID = regexp.MustCompile(`^[a-z]+$`)

// TestForms checks the issue forms: each field is one that GitHub knows, and has a label and an id of its own.
func TestForms(t *testing.T) {
	asked := ""
	for _, file := range []string{"bug.yml", "hardware.yml"} {
		var form struct {
			Name, Description string
			Labels            []string
			Body              []struct {
				Type, ID   string
				Attributes struct {
					Label, Description, Render, Value, Placeholder string
					Options                                        []string
				}
				Validations struct{ Required bool }
			}
		}
		asked += decode(t, filepath.Join(github, "ISSUE_TEMPLATE", file), &form)
		if form.Name == "" || form.Description == "" || len(form.Labels) != 1 || len(form.Body) < 3 {
			t.Errorf("%s: %+v", file, form)
		}
		ids := map[string]bool{}
		for _, f := range form.Body {
			switch f.Type {
			case "markdown":
				if f.Attributes.Value == "" {
					t.Errorf("%s: a text without a value", file)
				}
				continue
			case "dropdown":
				if len(f.Attributes.Options) < 2 {
					t.Errorf("%s: %s has %d options", file, f.ID, len(f.Attributes.Options))
				}
			case "input", "textarea":
			default:
				t.Errorf("%s: type %q", file, f.Type)
			}
			if !formID.MatchString(f.ID) || ids[f.ID] || f.Attributes.Label == "" {
				t.Errorf("%s: field %q, label %q", file, f.ID, f.Attributes.Label)
			}
			ids[f.ID] = true
		}
	}
	for _, want := range []string{"goverbs doctor -json", "make hardware", "report-DEVICE.txt", "GOVERBS_TRACE=1"} {
		if !strings.Contains(asked, want) {
			t.Errorf("no form asks for %q", want)
		}
	}
	decode(t, filepath.Join(github, "ISSUE_TEMPLATE", "config.yml"), new(struct {
		Blank bool                                `yaml:"blank_issues_enabled"`
		Links []struct{ Name, URL, About string } `yaml:"contact_links"`
	}))
}

// TestDependabot checks that each module of the tree is updated.
func TestDependabot(t *testing.T) {
	var config struct {
		Version int
		Updates []struct {
			Ecosystem   string `yaml:"package-ecosystem"`
			Directory   string
			Directories []string
			Schedule    struct{ Interval string }
			Groups      map[string]struct{ Patterns []string }
		}
	}
	decode(t, filepath.Join(github, "dependabot.yml"), &config)
	updated := map[string]bool{}
	for _, u := range config.Updates {
		for _, dir := range append(u.Directories, u.Directory) {
			updated[u.Ecosystem+" "+dir] = true
		}
	}
	modules := strings.Fields(output(t, "git", "ls-files", "go.mod", "**/go.mod"))
	if len(modules) < 5 {
		t.Fatalf("modules %q", modules)
	}
	for _, m := range modules {
		dir := "/" + strings.TrimSuffix(strings.TrimSuffix(m, "go.mod"), "/")
		if !updated["gomod "+dir] {
			t.Errorf("dependabot.yml lacks the module %s", dir)
		}
	}
	if !updated["github-actions /"] {
		t.Error("dependabot.yml lacks the actions of the workflows")
	}
}

// TestOwners checks that each file has an owner.
func TestOwners(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(github, "CODEOWNERS"))
	if err != nil || string(text) != "* @goverbs/maintainers\n" {
		t.Errorf("%q, %v", text, err)
	}
}
