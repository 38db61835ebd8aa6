package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestRun(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	a := file("a", `{"event":"x","n":"qp#1","v":1}`+"\n")
	b := file("b", `{"event":"x","n":"qp#1","v":2}`+"\n")
	bad := file("bad", "nonsense\n")
	for _, c := range []struct {
		args   []string
		status int
		stdout string
		stderr string
	}{
		{[]string{a, a}, 0, "", ""},
		{[]string{a, b}, 1, "differ in v", ""},
		{[]string{"-ignore", "v", a, b}, 0, "", ""},
		{[]string{"-kinds", "y", a, b}, 0, "", ""},
		{[]string{a, bad}, 2, "", "line 1 of the second trace"},
		{[]string{a, filepath.Join(dir, "none")}, 2, "", "no such file"},
		{[]string{filepath.Join(dir, "none"), a}, 2, "", "no such file"},
		{[]string{a}, 2, "", "usage"},
		{[]string{"-nonsense"}, 2, "", "usage"},
	} {
		var stdout, stderr bytes.Buffer
		status := run(c.args, &stdout, &stderr)
		if status != c.status || !strings.Contains(stdout.String(), c.stdout) ||
			!strings.Contains(stderr.String(), c.stderr) ||
			c.stderr == "" && stderr.Len() > 0 {
			t.Errorf("%v: status %d, printed %q and %q", c.args, status, &stdout, &stderr)
		}
	}
}
