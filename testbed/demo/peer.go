package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/goverbs/goverbs/testbed/vm"
	"github.com/goverbs/goverbs/testbed/vm/bed"
)

// pings is the number of round trips of the C program.
const pings = 3

// peer boots the kernel with a small Debian and connects rdma-core's rping, a C
// program that uses librdmacm, to our rping, a static Go program.
func peer(ctx context.Context, kernel, dir string) (err error) {
	program := filepath.Join(dir, "rping")
	if err := build(ctx, program, "amd64", "github.com/goverbs/goverbs/cmd/rping"); err != nil {
		return err
	}
	config := vm.Config{Kernel: kernel, Root: true, RXE: true, BootTimeout: limit}
	parts, err := config.Parts()
	if err != nil {
		return err
	}
	b, err := bed.Ensure(ctx, os.Stderr, parts...)
	if err != nil {
		return err
	}
	fmt.Printf("demo: booting Linux %s again, with rdma-core's C programs\n", kernel)
	g, err := vm.Boot(ctx, b, config)
	if err != nil {
		return err
	}
	defer func() {
		if closeErr := g.Close(); err == nil {
			err = closeErr
		}
	}()
	if program, err = g.Install(program); err != nil {
		return err
	}
	return ping(ctx, g, program)
}

// ping runs the Go server and the C client.
func ping(ctx context.Context, g *vm.Guest, program string) error {
	const address = "10.9.0.1"
	var served bytes.Buffer
	server := g.CommandContext(ctx, program, "-s", "-a", address, "-v", "-C", fmt.Sprint(pings))
	server.Stdout, server.Stderr = &served, &served
	if err := server.Start(); err != nil {
		return err
	}
	// The client is rejected until the server listens.
	client := g.CommandContext(ctx, "sh", "-c", fmt.Sprintf(
		"until rdma resource show cm_id | grep -q LISTEN; do :; done; exec rping -c -a %s -v -V -C %d", address, pings))
	called, err := client.CombinedOutput()
	if serveErr := server.Wait(); err == nil {
		err = serveErr
	}
	if err != nil {
		return fmt.Errorf("rping: %w\nC client:\n%s\nGo server:\n%s", err, called, served.String())
	}
	for _, line := range strings.Split(strings.TrimSpace(string(called)), "\n") {
		fmt.Println("demo: C rping:  ", line)
	}
	for _, line := range strings.Split(strings.TrimSpace(served.String()), "\n") {
		fmt.Println("demo: Go server:", line)
	}
	if n := strings.Count(string(called), "ping data: rdma-ping-"); n != pings {
		return fmt.Errorf("the C client received %d replies, not %d", n, pings)
	}
	fmt.Println("demo: the C program received its bytes back from the Go server")
	return nil
}
