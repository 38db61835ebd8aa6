package examples

import (
	"os"
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
