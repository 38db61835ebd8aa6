//go:build vm

package main

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/goverbs/goverbs/testbed/vm"
)

// TestDemo runs the demo as make demo does. The demo fails unless all bytes arrived
// and no object is left in the kernel.
func TestDemo(t *testing.T) {
	if err := run(t.Context(), "6.12", "amd64"); err != nil {
		t.Fatal(err)
	}
}

// TestHello runs the README's program twice in a guest, as server and as client.
func TestHello(t *testing.T) {
	g := vm.Start(t, vm.Config{Kernel: "6.12", RXE: true})
	program, err := g.Install(vm.BuildProgram(t, "github.com/goverbs/goverbs/examples/hello", "", "amd64"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var served bytes.Buffer
	server := g.CommandContext(ctx, program)
	server.Stdout, server.Stderr = &served, &served
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	var called []byte
	for {
		called, err = g.CommandContext(ctx, program, "10.9.0.1:7471").CombinedOutput()
		if !strings.Contains(string(called), "no program listens") || ctx.Err() != nil {
			break // the server listens
		}
	}
	if err := errors.Join(err, server.Wait()); err != nil {
		t.Fatalf("%v\n%s\n%s", err, called, served.String())
	}
	if said := served.String(); said != "heard: hello\n" {
		t.Errorf("the server said %q", said)
	}
	if said := string(called); !strings.HasPrefix(said, "reply: hello to 10.9.0.1:") {
		t.Errorf("the client said %q", said)
	}
}
