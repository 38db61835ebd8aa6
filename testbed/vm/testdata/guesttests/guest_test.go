// Package guesttests is a misbehaving test binary for the test of vm.RunTests.
package guesttests

import (
	"fmt"
	"os"
	"testing"
)

// mode selects the test that misbehaves.
var mode = os.Getenv("GUESTTEST_MODE")

func TestPass(t *testing.T) { t.Log("running in", os.Getenv("GOVERBS_KERNEL")) }

func TestSkip(t *testing.T) { t.Skip("for a reason") }

func TestParallel(t *testing.T) {
	for _, name := range []string{"a", "b", "c"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fmt.Println("line of", name)
		})
	}
}

func TestNested(t *testing.T) {
	t.Run("one", func(t *testing.T) {
		t.Run("two", func(t *testing.T) {
			if mode == "fail" {
				t.Error("failed on purpose")
			}
		})
	})
}

func TestTrouble(t *testing.T) {
	switch mode {
	case "panic":
		panic("on purpose")
	case "goroutine":
		go panic("in a goroutine, on purpose")
		select {}
	case "exit":
		os.Exit(3)
	case "hang":
		t.Log("hanging")
		select {}
	case "segfault":
		var p *int
		*p = 1
	}
}

func TestMain(m *testing.M) {
	status := m.Run()
	if mode == "late" {
		os.Exit(7)
	}
	os.Exit(status)
}
