package main

import (
	"strings"
	"testing"
)

func TestArguments(t *testing.T) {
	for args, want := range map[string]string{"-n 0": "-n", "-idle -1": "-idle", "more": "argument", "-x": "-x"} {
		if err := run(strings.Fields(args)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", args, err)
		}
	}
}
