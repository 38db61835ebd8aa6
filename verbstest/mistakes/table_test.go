package mistakes

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
)

// TestTable checks that docs/evidence/mistakes.md has the tables of mistakes.
func TestTable(t *testing.T) {
	const file = "../../docs/evidence/mistakes.md"
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if count := counted(); !strings.Contains(string(text), count) {
		t.Errorf("%s does not say %q", file, count)
	}
	page, err := os.ReadFile("../../docs/testing.md")
	if err != nil {
		t.Fatal(err)
	}
	if short := fmt.Sprintf("each of %d mistakes", len(mistakes)); !strings.Contains(string(page), short) {
		t.Errorf("docs/testing.md does not say %q", short)
	}
	want := replace(t, replace(t, string(text), "mistakes", table()), "mistakes with rdma", rdmaTable())
	if want == string(text) {
		return
	}
	if flag.Lookup("update").Value.String() != "true" { // a flag of package ioctltest
		t.Fatalf("the tables in %s are old: go test ./verbstest/mistakes -update", file)
	}
	if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
		t.Fatal(err)
	}
}

// counted returns the sentence with the number of mistakes that are impossible with package rdma.
func counted() string {
	impossible := 0
	for _, m := range mistakes {
		if strings.HasPrefix(m.rdma, "impossible: ") {
			impossible++
		}
	}
	return fmt.Sprintf("With package [rdma](../guide.md), %d of these %d mistakes are impossible:", impossible,
		len(mistakes))
}

// replace replaces the part of text with a name.
func replace(t *testing.T, text, name, part string) string {
	t.Helper()
	begin, end := "<!-- "+name+" -->\n", "<!-- end of "+name+" -->\n"
	before, rest, found := strings.Cut(text, begin)
	_, after, ended := strings.Cut(rest, end)
	if !found || !ended {
		t.Fatalf("the lines %q and %q are missing", begin, end)
	}
	return before + begin + part + end + after
}

// table returns the table of mistakes as Markdown.
func table() string {
	var b strings.Builder
	b.WriteString("| program | the test reports | the program sees on rxe | with package `rdma` |\n|---|---|---|---|\n")
	for _, m := range mistakes {
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", m.name(), m.reported(), m.rxe, m.rdma)
	}
	return b.String()
}

// rdmaTable returns the table of mistakes with package rdma as Markdown.
func rdmaTable() string {
	var b strings.Builder
	b.WriteString("| program | the test reports | the program sees |\n|---|---|---|\n")
	for _, m := range rdmaMistakes {
		fmt.Fprintf(&b, "| %s | %s | %s |\n", m.name(), m.reported(), m.memory)
	}
	return b.String()
}

// reported returns what the test reports.
func (m *mistake) reported() string {
	if m.report == byLibrary {
		return "nothing: the library returns the error"
	}
	return example(m.report)
}

// TestRDMAPrograms checks that each mistake is impossible with package rdma or has programs there.
func TestRDMAPrograms(t *testing.T) {
	programs := map[string]bool{"goroutineLeft": true} // the same with any package
	for _, m := range rdmaMistakes {
		programs[m.name()] = true
	}
	for _, m := range mistakes {
		if strings.HasPrefix(m.rdma, "impossible: ") {
			continue
		}
		for _, name := range strings.Split(m.rdma, ", ") {
			if !programs[name] {
				t.Errorf("%s: there is no program %q", m.name(), name)
			}
		}
	}
}

var started = regexp.MustCompile(`\\S\+.* at \\S\+`)

// example returns what a regular expression of reports stands for.
func example(report string) string {
	report = started.ReplaceAllString(report, "main.serve at kv.go:60")
	return strings.NewReplacer(`: posted at LINE`, "", `: armed at LINE`, "",
		"LINE", "kv.go:41", "OTHER", "kv.go:50", `0x\w+`, "0x…",
		`\S+`, "192.0.2.1:7471", `\d+`, "3", `.*`, "…", `\`, "").Replace(report)
}
