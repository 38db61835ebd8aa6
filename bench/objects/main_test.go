package main

import (
	"strings"
	"testing"
)

func TestPages(t *testing.T) {
	for _, small := range []bool{false, true} {
		b, err := pages(5000, small)
		if err != nil || len(b) != 5000 || align(b, 2<<20) != 0 {
			t.Errorf("%d bytes, %d before a huge page, %v", len(b), align(b, 2<<20), err)
		}
	}
}

func TestArguments(t *testing.T) {
	for args, want := range map[string]string{"-n 0": "-n", "-size 0": "-size", "more": "argument", "-x": "-x"} {
		if err := run(strings.Fields(args)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", args, err)
		}
	}
}
