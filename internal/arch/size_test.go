package arch

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// sizeRow is a row of the table of sizes.
var sizeRow = regexp.MustCompile(`(?m)^\| \x60provider/(\w+)\x60 \| (\d+) \|$`)

// TestSizes checks the table of docs/support.md that says by how much a provider makes a program larger: a figure may
// differ by a tenth, or by 10 KB. A program that imports one provider must not pay for others.
func TestSizes(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(filepath.Join(root, "docs/support.md"))
	if err != nil {
		t.Fatal(err)
	}
	none := helloSize(t, "")
	rows := sizeRow.FindAllStringSubmatch(string(page), -1)
	if len(rows) < 2 {
		t.Fatal("docs/support.md has no table of sizes")
	}
	for _, row := range rows {
		said, err := strconv.Atoi(row[2])
		if err != nil {
			t.Fatal(err)
		}
		got := (helloSize(t, row[1]) - none + 500) / 1000
		if d := got - said; max(d, -d) > max(said/10, 10) {
			t.Errorf("provider/%s makes examples/hello %d KB larger, and docs/support.md says %d KB", row[1], got, said)
		}
	}
}

// helloSize returns the size of examples/hello with a provider in place of provider/all, or with none.
func helloSize(t *testing.T, provider string) int {
	t.Helper()
	source := filepath.Join(root, "examples/hello/main.go")
	b, err := os.ReadFile(source)
	if err != nil {
		t.Fatal(err)
	}
	const all = `_ "` + module + `/provider/all"`
	if !strings.Contains(string(b), all) {
		t.Fatalf("%s does not import provider/all", source)
	}
	this := ""
	if provider != "" {
		this = strings.Replace(all, "all", provider, 1)
	}
	dir := t.TempDir()
	bin, overlay := filepath.Join(dir, "hello"), filepath.Join(dir, "overlay.json")
	if source, err = filepath.Abs(source); err != nil {
		t.Fatal(err)
	}
	replaced, err := json.Marshal(map[string]any{"Replace": map[string]string{source: filepath.Join(dir, "main.go")}})
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string][]byte{"main.go": []byte(strings.Replace(string(b), all, this, 1)),
		"overlay.json": replaced} {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	build := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-overlay", overlay, "-o", bin,
		"./examples/hello")
	build.Dir, build.Env = root, append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=", "GOOS=linux", "GOARCH=amd64")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	s, err := os.Stat(bin)
	if err != nil {
		t.Fatal(err)
	}
	return int(s.Size())
}
