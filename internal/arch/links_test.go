package arch

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode"
)

var (
	codeBlock = regexp.MustCompile("(?ms)^ *```.*?^ *```$")
	codeSpan  = regexp.MustCompile("`[^`\n]*`")
	link      = regexp.MustCompile(`\]\(([^()\s]+)\)`)
	heading   = regexp.MustCompile(`(?m)^#{1,6} +(.*)$`)
	linkText  = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)
)

// pages returns the Markdown files of the tree, without those in testdata.
func pages(t *testing.T) (all []string) {
	walk(t, func(name string, d fs.DirEntry) error {
		if d.IsDir() && d.Name() == "testdata" {
			return filepath.SkipDir
		}
		if !d.IsDir() && strings.HasSuffix(name, ".md") {
			all = append(all, name)
		}
		return nil
	})
	return all
}

// anchors returns the anchors of a page's headings, as GitHub makes them.
func anchors(page string) map[string]bool {
	all := map[string]bool{}
	for _, m := range heading.FindAllStringSubmatch(codeBlock.ReplaceAllString(page, ""), -1) {
		text := linkText.ReplaceAllString(strings.TrimSpace(m[1]), "$1")
		anchor := strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case unicode.IsLetter(r), unicode.IsDigit(r), r == '-', r == '_':
				return unicode.ToLower(r)
			}
			return -1
		}, text)
		unique := anchor
		for i := 1; all[unique]; i++ {
			unique = fmt.Sprintf("%s-%d", anchor, i)
		}
		all[unique] = true
	}
	return all
}

// brokenLinks returns the links of a page to files or headings that do not exist.
func brokenLinks(name, text string) (all []string) {
	text = codeSpan.ReplaceAllString(codeBlock.ReplaceAllString(text, ""), "")
	for _, m := range link.FindAllStringSubmatch(text, -1) {
		if strings.Contains(m[1], "://") || strings.HasPrefix(m[1], "mailto:") {
			continue
		}
		target, anchor, found := strings.Cut(m[1], "#")
		file := name
		if target != "" {
			file = filepath.Join(filepath.Dir(name), filepath.FromSlash(target))
		}
		if _, err := os.Stat(file); err != nil {
			all = append(all, m[1]+": no such file")
			continue
		}
		if !found || !strings.HasSuffix(file, ".md") {
			continue
		}
		if page, err := os.ReadFile(file); err != nil || !anchors(string(page))[anchor] {
			all = append(all, m[1]+": no such heading")
		}
	}
	return all
}

// TestLinks checks that each link between files of the tree has a target.
func TestLinks(t *testing.T) {
	all := pages(t)
	for _, name := range all {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, broken := range brokenLinks(name, string(text)) {
			t.Errorf("%s: %s", name, broken)
		}
	}
	if len(all) < 20 {
		t.Errorf("only %d pages have been checked", len(all))
	}
}

func TestBrokenLinks(t *testing.T) {
	name := filepath.Join(t.TempDir(), "page.md")
	text := "# A `b` [c](x)\n\n[1](#a-b-c) [2](none.md) [3](page.md#none) [4](https://example.com) `[5](none)`\n" +
		"```\n# not a heading\n[6](none)\n```\n## A b c\n[7](#a-b-c-1) [8](#not-a-heading) [9](page.md)\n"
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	got := strings.Join(brokenLinks(name, text), "; ")
	want := "x: no such file; none.md: no such file; page.md#none: no such heading; #not-a-heading: no such heading"
	if got != want {
		t.Errorf("broken: %s, want %s", got, want)
	}
}

// testName matches the name of a test in a code span.
var testName = regexp.MustCompile("`((?:Test|Fuzz)[A-Z]\\w*)`")

// TestNamedTests checks that the tests exist that docs/support.md and SECURITY.md name.
func TestNamedTests(t *testing.T) {
	exists := map[string]bool{}
	function := regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(`)
	walk(t, func(name string, d fs.DirEntry) error {
		if d.IsDir() || !strings.HasSuffix(name, "_test.go") {
			return nil
		}
		text, err := os.ReadFile(name)
		for _, m := range function.FindAllStringSubmatch(string(text), -1) {
			exists[m[1]] = true
		}
		return err
	})
	for _, page := range []string{"SECURITY.md", "docs/support.md"} {
		text, err := os.ReadFile(filepath.Join(root, page))
		if err != nil {
			t.Fatal(err)
		}
		named := testName.FindAllStringSubmatch(string(text), -1)
		if len(named) < 5 {
			t.Errorf("%s names only %d tests", page, len(named))
		}
		for _, m := range named {
			if !exists[m[1]] {
				t.Errorf("%s: there is no test %s", page, m[1])
			}
		}
	}
}

var fileName = regexp.MustCompile("`([a-z_/]+\\.go)`")

// TestFileNames checks that the files that docs/architecture.md names exist.
func TestFileNames(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "docs/architecture.md"))
	if err != nil {
		t.Fatal(err)
	}
	exists := map[string]bool{}
	for _, f := range files(t) {
		exists[f.path], exists[filepath.Base(f.path)] = true, true
	}
	for _, m := range fileName.FindAllSubmatch(text, -1) {
		if name := string(m[1]); !exists[name] {
			t.Errorf("docs/architecture.md: there is no %s", name)
		}
	}
}
