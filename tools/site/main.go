// Site builds a static site of the documentation: every Markdown file of the repository as a page, with the pictures
// that it shows. Links to other files lead to GitHub.
//
//	site -o bin/site DIR
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

func main() {
	out := flag.String("o", "bin/site", "directory of the site, which is replaced")
	flag.Parse()
	if flag.NArg() != 1 {
		fmt.Fprintln(os.Stderr, "usage: site [-o OUT] DIR")
		os.Exit(2)
	}
	n, err := build(flag.Arg(0), *out)
	if err != nil {
		fmt.Fprintln(os.Stderr, "site:", err)
		os.Exit(1)
	}
	fmt.Printf("%d pages in %s: open %s\n", n, *out, filepath.Join(*out, "index.html"))
}

// build writes the site of the repository in root to out, and returns the number of pages.
func build(root, out string) (pages int, err error) {
	s, err := read(root)
	if err != nil {
		return 0, err
	}
	if err := clear(out); err != nil {
		return 0, err
	}
	for _, name := range s.pages {
		text, err := s.render(name)
		if err != nil {
			return 0, fmt.Errorf("%s: %w", name, err)
		}
		if err := write(out, htmlName(name), text); err != nil {
			return 0, err
		}
	}
	for name := range s.pictures {
		picture, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(name)))
		if err != nil {
			return 0, err
		}
		if err := write(out, name, picture); err != nil {
			return 0, err
		}
	}
	return len(s.pages), write(out, styleName, style)
}

// clear removes a site that was built before. It refuses a directory of something else.
func clear(out string) error {
	entries, err := os.ReadDir(out)
	if errors.Is(err, os.ErrNotExist) || err == nil && len(entries) == 0 {
		return nil
	}
	if err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(out, styleName)); err != nil {
		return fmt.Errorf("%s has files and is not a site (it has no %s): give another directory with -o", out, styleName)
	}
	return os.RemoveAll(out)
}

func write(out, name string, text []byte) error {
	name = filepath.Join(out, filepath.FromSlash(name))
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	return os.WriteFile(name, text, 0o644)
}

// A site is what the pages are made from. Names are paths from the root, with slashes.
type site struct {
	root     string
	files    map[string]bool // of the repository, and their directories
	pages    []string        // Markdown files
	pictures map[string]bool // that pages show
}

// read lists the files of the repository, without those that git does not have.
func read(root string) (*site, error) {
	cmd := exec.Command("git", "-C", root, "ls-files", "--cached", "--others", "--exclude-standard", "-z")
	list, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("git ls-files: %w", err)
	}
	s := &site{root: root, files: map[string]bool{".": true}, pictures: map[string]bool{}}
	for name := range strings.SplitSeq(strings.Trim(string(list), "\x00"), "\x00") {
		for dir := name; dir != "."; dir = path.Dir(dir) {
			s.files[dir] = true
		}
		if path.Ext(name) == ".md" && !strings.Contains("/"+name, "/testdata/") && !strings.HasPrefix(name, ".") {
			s.pages = append(s.pages, name)
		}
	}
	slices.Sort(s.pages)
	if !slices.Contains(s.pages, "README.md") {
		return nil, fmt.Errorf("%s has no README.md", root)
	}
	return s, nil
}

// htmlName returns the file of a page: index.html for README.md.
func htmlName(name string) string {
	dir, base := path.Split(name)
	if base == "README.md" {
		return dir + "index.html"
	}
	return strings.TrimSuffix(name, ".md") + ".html"
}
