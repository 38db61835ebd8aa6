package main

import (
	"encoding/xml"
	"errors"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const root = "../.."

// An htmlPage is what the test reads of a page.
type htmlPage struct {
	title string
	ids   map[string]bool
	links []string // href and src
}

// parse reads a page, which is XML too.
func parse(t *testing.T, text []byte) (p htmlPage) {
	t.Helper()
	p.ids = map[string]bool{}
	d := xml.NewDecoder(strings.NewReader(strings.TrimPrefix(string(text), "<!DOCTYPE html>")))
	d.Entity = xml.HTMLEntity
	element := ""
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return p
		}
		if err != nil {
			t.Fatalf("%v in\n%.500s", err, text)
		}
		switch token := token.(type) {
		case xml.StartElement:
			element = token.Name.Local
			for _, a := range token.Attr {
				switch a.Name.Local {
				case "id":
					if p.ids[a.Value] {
						t.Errorf("id %q is there twice", a.Value)
					}
					p.ids[a.Value] = true
				case "href", "src":
					p.links = append(p.links, a.Value)
				}
			}
		case xml.CharData:
			if element == "title" {
				p.title += string(token)
			}
		case xml.EndElement:
			element = ""
		}
	}
}

// built builds the site of this tree, and returns its pages and the names of its other files.
func built(t *testing.T) (pages map[string]htmlPage, others map[string]bool) {
	t.Helper()
	out := filepath.Join(t.TempDir(), "site")
	n, err := build(root, out)
	if err != nil {
		t.Fatal(err)
	}
	pages, others = map[string]htmlPage{}, map[string]bool{}
	err = filepath.WalkDir(out, func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name, err := filepath.Rel(out, file)
		if err != nil {
			return err
		}
		text, err := os.ReadFile(file)
		if name = filepath.ToSlash(name); path.Ext(name) == ".html" {
			pages[name] = parse(t, text)
		} else {
			others[name] = true
		}
		return err
	})
	if err != nil || n != len(pages) || n < 20 {
		t.Fatalf("%d pages, %d files, %v", n, len(pages), err)
	}
	return pages, others
}

// TestSite builds the site of this tree. Each link leads to a page with the anchor, a file of the site, or a file of
// the repository, and each page that a person reads is in the menu.
func TestSite(t *testing.T) {
	pages, others := built(t)
	for name, p := range pages {
		if !strings.HasSuffix(p.title, " · goverbs") || len(p.links) < 20 {
			t.Errorf("%s: title %q, %d links", name, p.title, len(p.links))
		}
		for _, link := range p.links {
			if why := broken(name, link, pages, others); why != "" {
				t.Errorf("%s: %s: %s", name, link, why)
			}
		}
	}
	var shown []string
	for _, part := range parts {
		for _, p := range part.pages {
			shown = append(shown, p[1])
		}
	}
	names, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range names {
		if !slices.Contains(shown, "docs/"+filepath.Base(file)) {
			t.Errorf("%s is not in the menu", file)
		}
	}
}

// broken returns why a link of a page does not work, or nothing.
func broken(name, link string, pages map[string]htmlPage, others map[string]bool) string {
	u, err := url.Parse(link)
	if err != nil {
		return err.Error()
	}
	if u.IsAbs() {
		if file, found := strings.CutPrefix(link, repository+"/tree/main/"); found {
			if _, err := os.Stat(filepath.Join(root, filepath.FromSlash(file))); err != nil {
				return err.Error()
			}
		}
		if u.Scheme != "https" {
			return "the scheme is not https"
		}
		return ""
	}
	file := name
	if u.Path != "" {
		file = path.Join(path.Dir(name), u.Path)
	}
	p, found := pages[file]
	switch {
	case !found && !others[file]:
		return "no such file"
	case u.Fragment != "" && !p.ids[u.Fragment]:
		return "no such anchor"
	}
	return ""
}

func TestBroken(t *testing.T) {
	pages := map[string]htmlPage{"docs/a.html": {ids: map[string]bool{"b": true}}}
	others := map[string]bool{"style.css": true}
	for link, want := range map[string]string{"#b": "", "#c": "no such anchor", "a.html#b": "", "../docs/a.html": "",
		"../style.css": "", "x.svg": "no such file", "http://example.com": "the scheme is not https",
		"https://example.com": ""} {
		if got := broken("docs/a.html", link, pages, others); got != want {
			t.Errorf("%s: %q, want %q", link, got, want)
		}
	}
	if broken("docs/a.html", repository+"/tree/main/none.go", pages, others) == "" {
		t.Error("a link to a file of the repository that does not exist")
	}
}

// TestLink checks where links lead, and that a link or a picture without a target is an error.
func TestLink(t *testing.T) {
	s := &site{files: map[string]bool{".": true, "README.md": true, "cm": true, "cm/cm.go": true, "testbed/vm": true,
		"testbed/vm/README.md": true, "docs/a.md": true, "docs/x.svg": true}, pictures: map[string]bool{}}
	for link, want := range map[string]string{
		"#x": "#x", "a.md": "a.html", "a.md#x": "a.html#x", "../README.md#y": "../index.html#y",
		"../cm": repository + "/tree/main/cm", "../cm/cm.go": repository + "/tree/main/cm/cm.go",
		"../testbed/vm": "../testbed/vm/index.html", "https://example.com/a.md": "https://example.com/a.md",
	} {
		if got, err := s.link("docs/b.md", []byte(link)); string(got) != want || err != nil {
			t.Errorf("%s: %s, %v, want %s", link, got, err, want)
		}
	}
	if _, err := s.link("docs/b.md", []byte("none.md")); err == nil {
		t.Error("a link to nothing")
	}
	if s.picture("docs/b.md", []byte("x.svg")) != nil || s.picture("docs/b.md", []byte("y.svg")) == nil ||
		!s.pictures["docs/x.svg"] {
		t.Errorf("pictures %v", s.pictures)
	}
}

// TestAnchors checks the ids of headings: those of GitHub.
func TestAnchors(t *testing.T) {
	all := anchors{}
	for _, c := range [][2]string{{"A `b` [c](x)", "a-b-c"}, {"A b c", "a-b-c-1"},
		{"Linux 6.1 and 7.2", "linux-61-and-72"}} {
		if got := string(all.Generate([]byte(c[0]), 0)); got != c[1] {
			t.Errorf("%s: %s, want %s", c[0], got, c[1])
		}
	}
}

// TestClear checks that a site is replaced, and nothing else.
func TestClear(t *testing.T) {
	out := t.TempDir()
	if err := clear(out); err != nil {
		t.Error(err)
	}
	if err := write(out, "a", nil); err != nil {
		t.Fatal(err)
	}
	if err := clear(out); err == nil {
		t.Error("a directory with other files was removed")
	}
	if err := write(out, styleName, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(out); clear(out) != nil || err != nil {
		t.Error("a site was not replaced")
	}
}
