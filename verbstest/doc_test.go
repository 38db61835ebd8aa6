package verbstest_test

import (
	"os"
	"strings"
	"testing"
)

// TestDocumentation checks that the package comment and docs/testing.md have the text of TestRequest.
func TestDocumentation(t *testing.T) {
	read := func(name string) string { return string(must(os.ReadFile(name))(t)) }
	const first = "func TestRequest("
	_, rest, _ := strings.Cut(read("request_test.go"), "\n"+first)
	body, _, ok := strings.Cut(rest, "\n}\n")
	if !ok {
		t.Fatal("request_test.go has no TestRequest")
	}
	text := first + body + "\n}\n"
	if !strings.Contains(read("../docs/testing.md"), "```go\n"+text+"```\n") {
		t.Error("the test in docs/testing.md is not TestRequest: copy it")
	}
	comment := "//\t" + strings.ReplaceAll(strings.TrimSuffix(text, "\n"), "\n", "\n//\t")
	if !strings.Contains(read("doc.go"), "\n//\n"+comment+"\n//\n") {
		t.Error("the test in doc.go is not TestRequest: copy it")
	}
}
