package examples

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestReadmeProgram checks that the program in the README is examples/hello.
func TestReadmeProgram(t *testing.T) {
	readme, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile("hello/main.go")
	if err != nil {
		t.Fatal(err)
	}
	_, program, found := strings.Cut(string(source), "package main\n")
	if !found {
		t.Fatal("examples/hello has no package clause")
	}
	if !strings.Contains(string(readme), "```go\npackage main\n"+program+"```\n") {
		t.Error("the program in README.md is not examples/hello/main.go: copy it")
	}
}

// TestReadmeNamesExamples checks that the README links to each example.
func TestReadmeNamesExamples(t *testing.T) {
	readme, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.IsDir() && !strings.Contains(string(readme), "](examples/"+e.Name()+")") {
			t.Errorf("README.md has no link to examples/%s", e.Name())
		}
	}
}

// TestGuide checks that each listing of docs/guide.md is in examples/guide, whose tests run it.
func TestGuide(t *testing.T) {
	page, err := os.ReadFile("../docs/guide.md")
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob("guide/*.go")
	if err != nil {
		t.Fatal(err)
	}
	var sources strings.Builder
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		sources.Write(b)
	}
	blocks := strings.Split(string(page), "```go\n")[1:]
	for i, b := range blocks {
		listing, _, _ := strings.Cut(b, "```")
		if !strings.Contains(sources.String(), listing) {
			t.Errorf("listing %d is not in examples/guide:\n%s", i+1, listing)
		}
	}
	if len(blocks) < 5 {
		t.Errorf("only %d listings", len(blocks))
	}
}
