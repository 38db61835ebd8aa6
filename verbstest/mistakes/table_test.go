package mistakes

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
)

// TestTable checks that docs/testing.md has the table of mistakes.
func TestTable(t *testing.T) {
	const file, begin, end = "../../docs/testing.md", "<!-- mistakes -->\n", "<!-- end of mistakes -->\n"
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, found := strings.Cut(string(text), begin)
	_, after, ended := strings.Cut(rest, end)
	if !found || !ended {
		t.Fatalf("%s lacks the lines %q and %q", file, begin, end)
	}
	want := before + begin + table() + end + after
	if want == string(text) {
		return
	}
	if flag.Lookup("update").Value.String() != "true" { // a flag of package ioctltest
		t.Fatalf("the table in %s is old: go test ./verbstest/mistakes -update", file)
	}
	if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
		t.Fatal(err)
	}
}

// table returns the table of mistakes as Markdown.
func table() string {
	var b strings.Builder
	b.WriteString("| program | the test reports | the program sees on rxe |\n|---|---|---|\n")
	for _, m := range mistakes {
		report := example(m.report)
		if m.report == byLibrary {
			report = "nothing: the library returns the error"
		}
		fmt.Fprintf(&b, "| %s | %s | %s |\n", m.name(), report, m.rxe)
	}
	return b.String()
}

var started = regexp.MustCompile(`\\S\+.* at \\S\+`)

// example returns what a regular expression of reports stands for.
func example(report string) string {
	report = started.ReplaceAllString(report, "main.serve at kv.go:60")
	return strings.NewReplacer(`: posted at LINE`, "", "LINE", "kv.go:41", `0x\w+`, "0x…", `\d+`, "3", `.*`, "…", `\`, "").
		Replace(report)
}
