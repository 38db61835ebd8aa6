package doctor

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the table of docs/doctor.md")

const (
	page  = "../../../docs/doctor.md"
	begin = "<!-- table: go test ./cmd/internal/doctor -run TestDocument -update -->\n"
	end   = "<!-- end of table -->\n"
)

// TestDocument checks the table of docs/doctor.md against what doctor prints for each fault.
func TestDocument(t *testing.T) {
	b, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, found := strings.Cut(string(b), begin)
	table, tail, closed := strings.Cut(rest, end)
	if !found || !closed {
		t.Fatalf("%s has no table between %q and %q", page, begin, end)
	}
	want := faultTable(t)
	if *update {
		if err := os.WriteFile(page, []byte(head+begin+want+end+tail), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if d := cmp.Diff(want, table); d != "" {
		t.Errorf("run go test ./cmd/internal/doctor -run TestDocument -update: (-want +got)\n%s", d)
	}
}

func faultTable(t *testing.T) string {
	var out strings.Builder
	out.WriteString("\n| fault | id | severity | output | fix |\n|---|---|---|---|---|\n")
	for _, c := range faults {
		f := newFake(t)
		c.plant(f)
		got := find(t, f.run(c.request), c.id)
		fix := strings.ReplaceAll(got.Fix, "|", "\\|")
		fmt.Fprintf(&out, "| %s | `%s` | %v | %s | %s |\n", c.name, got.ID, got.Severity, got.Seen, fix)
	}
	out.WriteString("\n")
	return out.String()
}
