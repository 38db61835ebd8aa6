package pyverbs

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func line(module, name string, o Outcome, why string) string {
	return fmt.Sprintf("pyverbs: {\"module\": %q, \"name\": %q, \"outcome\": %q, \"why\": %q}\n", module, name, o, why)
}

func TestRead(t *testing.T) {
	got, err := read([]byte("\n" + line("test_m", "test_b", Pass, "") + "chatter\n\n" +
		line("test_m", "test_a", Skip, "no such thing") +
		line("test_n", "test_d", Fail, "1 != 2") + "\npyverbs: end\n"))
	if err != nil {
		t.Fatal(err)
	}
	want := []Result{
		{"test_m", "test_b", Pass, ""},
		{"test_m", "test_a", Skip, "no such thing"},
		{"test_n", "test_d", Fail, "1 != 2"},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

func TestPythonThatDies(t *testing.T) {
	for _, out := range []string{
		"",
		line("test_m", "test_a", Pass, "") + "Segmentation fault\n",
		"pyverbs: nonsense\npyverbs: end\n",
	} {
		if _, err := read([]byte(out)); err == nil {
			t.Errorf("no error of %q", out)
		}
	}
}

func TestModulesIn(t *testing.T) {
	dir := t.TempDir()
	if _, err := modulesIn(dir); err == nil {
		t.Error("no error although there are no tests")
	}
	for _, name := range []string{"test_addr.py", "test_new.py", "base.py"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := modulesIn(dir)
	if err != nil || !slices.Equal(got, []string{"test_addr", "test_new"}) {
		t.Errorf("modules %v, %v", got, err)
	}
}
