package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/bench/measure"
)

// Calls of every length are measured.
func TestLevel(t *testing.T) {
	levels, err := level("127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if err := measure.Run(&out, 1, 0, levels...); err != nil {
		t.Error(err)
	}
	for _, name := range []string{"small_grpc ", "4KiB_grpc ", "64KiB_grpc ", "large_grpc "} {
		if !strings.Contains("\n"+out.String(), "\n"+name) {
			t.Errorf("no %sin\n%s", name, &out)
		}
	}
}

// Clients call the server.
func TestParts(t *testing.T) {
	at, stop, err := listen("127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	p := measure.Parts{Dial: dialClient}
	var out bytes.Buffer
	err = p.Run([]string{"dial", at}, strings.NewReader("connect 3\ncall 5\ncollect 1\n"), &out)
	if err != nil || out.String() != "ready\ndone\ndone\ndone\n" {
		t.Errorf("%v, the output is %q", err, &out)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}
