package verbstest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestWaits checks that waits is the only function of uverbs that arms a CQ, which rule LostWakeup relies on.
func TestWaits(t *testing.T) {
	files, err := filepath.Glob("../uverbs/*.go")
	if err != nil {
		t.Fatal(err)
	}
	var callers []string
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		function := ""
		for line := range strings.Lines(string(text)) {
			if strings.HasPrefix(line, "func ") {
				function = line
			}
			if !strings.HasSuffix(name, "_test.go") && strings.Contains(line, "q.Arm(") {
				callers = append(callers, function)
			}
		}
	}
	if want := "(q *CQ) " + waits[strings.LastIndexByte(waits, '.')+1:] + "("; len(callers) != 1 ||
		!strings.Contains(callers[0], want) {
		t.Errorf("CQs are armed by %q, not only by %s", callers, waits)
	}
}
