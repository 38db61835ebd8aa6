//go:build vm

package main

import (
	_ "embed"
	"testing"

	"github.com/goverbs/goverbs/testbed/vm"
	"github.com/goverbs/goverbs/testbed/vm/program"
)

//go:embed testdata/verbs.py
var verbsPython string

// startPython starts a Python program that executes verbs with the C libraries.
func startPython(t *testing.T, g *vm.Guest) *program.Dialogue {
	t.Helper()
	return program.Converse(t, g, "python3", "-c", verbsPython)
}
