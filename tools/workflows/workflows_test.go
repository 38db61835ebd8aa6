package workflows

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// output runs a command in the root of the tree.
func output(t *testing.T, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "MAKEFLAGS=", "MAKELEVEL=") // also below make
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(name)))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

var (
	// targets matches the documented targets of the Makefile.
	targets    = regexp.MustCompile(`(?m)^([a-z-]+):.*## `)
	makeTarget = regexp.MustCompile(`^make ([a-z-]+)((?: [A-Z]+=[a-z0-9]+)*)$`)
)

// sign signs the checksums of a release in the name of the workflow. The checksum database of Go's modules pins cosign.
const sign = "go run github.com/sigstore/cosign/v3/cmd/cosign@v3.1.3 sign-blob --yes " +
	"--bundle bin/dist/SHA256SUMS.sigstore.json bin/dist/SHA256SUMS"

const publish = `gh release create "$VERSION" --verify-tag --title "$VERSION" --notes-file bin/notes.md bin/dist/*`

// others are the commands of workflows that are not targets of the Makefile.
var others = []string{
	"apt-get update",
	"apt-get install -y --no-install-recommends ca-certificates git make gcc libc6-dev librdmacm-dev",
	`git config --global --add safe.directory "$GITHUB_WORKSPACE"`,
	sign,
	publish,
}

// TestCommands checks that each command of a workflow is a target of the Makefile or in the list of others, and that
// make has a rule for what the target needs.
func TestCommands(t *testing.T) {
	known := map[string]bool{}
	for _, m := range targets.FindAllStringSubmatch(read(t, "Makefile"), -1) {
		known[m[1]] = true
	}
	used := map[string]bool{}
	for file, w := range workflows(t) {
		for name, j := range w.Jobs {
			for _, s := range j.Steps {
				m := makeTarget.FindStringSubmatch(s.Run)
				switch {
				case s.Run == "" && s.Uses != "":
				case slices.Contains(others, s.Run):
					used[s.Run] = true
				case m == nil || !known[m[1]]:
					t.Errorf("%s, %s: %q is neither a target of the Makefile nor in the list", file, name, s.Run)
				default:
					used[m[1]] = true
					output(t, "make", append([]string{"-n", m[1]}, strings.Fields(m[2])...)...)
				}
			}
		}
	}
	for _, want := range append([]string{"check", "test", "race", "fuzz", "vuln", "api", "dist", "notes"}, others...) {
		if !used[want] {
			t.Errorf("no workflow runs %q", want)
		}
	}
}

// TestCheapCommands runs the commands that take seconds.
func TestCheapCommands(t *testing.T) {
	if text := output(t, "make", "help"); !strings.Contains(text, "notes") {
		t.Errorf("make help prints %s", text)
	}
	output(t, "make", "api")
	output(t, "make", "notes", "VERSION=v0.1.0")
	if text := read(t, "bin/notes.md"); !strings.Contains(text, "Package `rdma`") {
		t.Errorf("the notes are %q", text)
	}
}

// actions are the actions that workflows may use, by a tag of their major version.
var actions = []string{"actions/checkout@v4", "actions/setup-go@v5", "actions/cache@v4", "actions/upload-artifact@v4"}

// TestJobs checks what each job may do and for how long, where it runs, and what of others it uses.
func TestJobs(t *testing.T) {
	const longest = 360 // minutes, the limit of GitHub
	readOnly := map[string]string{"contents": "read"}
	for file, w := range workflows(t) {
		if w.Name == "" || w.On.IsZero() || !maps.Equal(w.Permissions, readOnly) {
			t.Errorf("%s: name %q, permissions %v: write contents: read", file, w.Name, w.Permissions)
		}
		for name, j := range w.Jobs {
			if j.Timeout <= 0 || j.Timeout > longest {
				t.Errorf("%s, %s: a limit of %d minutes", file, name, j.Timeout)
			}
			writes := map[string]string{"contents": "write", "id-token": "write"}
			if mayWrite := file == "release.yml" && name == "dist"; j.Permissions != nil &&
				(!mayWrite || !maps.Equal(j.Permissions, writes)) {
				t.Errorf("%s, %s: permissions %v", file, name, j.Permissions)
			}
			if j.RunsOn != "ubuntu-24.04" || j.Container != "" && j.Container != "debian:13" {
				t.Errorf("%s, %s: runs on %q, in %q", file, name, j.RunsOn, j.Container)
			}
			for _, s := range j.Steps {
				checkStep(t, file+", "+name, s)
			}
		}
	}
}

func checkStep(t *testing.T, where string, s step) {
	t.Helper()
	if (s.Uses == "") == (s.Run == "") || s.Uses != "" && !slices.Contains(actions, s.Uses) {
		t.Errorf("%s: uses %q, runs %q", where, s.Uses, s.Run)
	}
	if strings.Contains(s.Run, "${{") {
		t.Errorf("%s: %q has an expression, which a name of a branch could fill: pass it in env", where, s.Run)
	}
	switch action, _, _ := strings.Cut(s.Uses, "@"); action {
	case "actions/checkout":
		if s.With["persist-credentials"] != "false" {
			t.Errorf("%s: the checkout keeps its token", where)
		}
	case "actions/setup-go":
		version := strings.TrimSuffix(s.With["go-version"], ".x")
		if support := read(t, "docs/support.md"); !strings.Contains(support, "| "+version+" | tested |") {
			t.Errorf("%s: docs/support.md does not say that Go %s is tested", where, version)
		}
	}
}

// TestAPIHasTags checks that each job that compares the API has the tags of releases.
func TestAPIHasTags(t *testing.T) {
	for file, w := range workflows(t) {
		for name, j := range w.Jobs {
			whole, compares := false, false
			for _, s := range j.Steps {
				whole = whole || s.With["fetch-depth"] == "0"
				compares = compares || slices.Contains([]string{"make check", "make test", "make api"}, s.Run)
			}
			if compares && !whole {
				t.Errorf("%s, %s: fetch-depth is not 0", file, name)
			}
		}
	}
}

// TestBedCache checks that the nightly tests find the bed that the last ones fetched: the cache is that of the bed, and
// its key changes with what the bed fetches.
func TestBedCache(t *testing.T) {
	const path, in = "~/.cache/goverbs-bed", "testbed/vm/bed"
	if !strings.Contains(read(t, in+"/bed.go"), `filepath.Join(base, "goverbs-bed")`) ||
		!strings.Contains(read(t, in+"/bed.go"), "os.UserCacheDir()") {
		t.Errorf("the bed is no longer in %s", path)
	}
	found := false
	for file, w := range workflows(t) {
		for name, j := range w.Jobs {
			cached := slices.IndexFunc(j.Steps, func(s step) bool { return strings.HasPrefix(s.Uses, "actions/cache@") })
			test := slices.IndexFunc(j.Steps, func(s step) bool { return s.Run == "make test" })
			if cached < 0 && test < 0 {
				continue
			}
			found = true
			if cached < 0 || test < cached {
				t.Errorf("%s, %s: the cache is step %d, make test step %d", file, name, cached, test)
				continue
			}
			with := j.Steps[cached].With
			if with["path"] != path || with["key"] != "bed-${{ hashFiles('"+in+"/*.go') }}" || with["restore-keys"] != "bed-" {
				t.Errorf("%s, %s: the cache is %v", file, name, with)
			}
		}
	}
	if !found {
		t.Error("no workflow runs make test")
	}
}

// TestTagIsEnough checks that a tag starts the release, with the tag as version.
func TestTagIsEnough(t *testing.T) {
	w := workflows(t)["release.yml"]
	var on struct{ Push struct{ Tags []string } }
	if err := w.On.Decode(&on); err != nil || !slices.Equal(on.Push.Tags, []string{"v*"}) {
		t.Errorf("starts on %+v, %v", on, err)
	}
	j := w.Jobs["dist"]
	var commands []string // in this order, so that the signature is published
	for _, s := range j.Steps {
		if s.Run != "" {
			commands = append(commands, s.Run)
		}
	}
	if want := []string{"make notes", "make dist", sign, publish}; !slices.Equal(commands, want) {
		t.Errorf("it runs %q, want %q", commands, want)
	}
	if j.Env["VERSION"] != "${{ github.ref_name }}" || j.Env["GH_TOKEN"] != "${{ github.token }}" || j.Needs != "check" {
		t.Errorf("%+v", j)
	}
}
