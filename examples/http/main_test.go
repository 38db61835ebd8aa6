package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/goverbs/goverbs/verbstest"
)

// TestHTTP fetches a file, and one that does not exist.
func TestHTTP(t *testing.T) {
	dir, file := t.TempDir(), bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
	if err := os.WriteFile(filepath.Join(dir, "file"), file, 0o600); err != nil {
		t.Fatal(err)
	}
	net := verbstest.NewNetwork(t)
	server, client := net.Machine(), net.Machine()
	ctx, stop := context.WithTimeout(t.Context(), 30*time.Second)
	served := make(chan error, 1)
	server.Run(func() { go func() { served <- run(ctx, []string{"serve", dir}, nil) }() })
	url := "http://" + server.AddrPort(7471).String()
	client.Run(func() {
		var out bytes.Buffer
		err := run(ctx, []string{"get", url + "/file"}, &out)
		for errors.Is(err, syscall.ECONNREFUSED) && ctx.Err() == nil { // the server is not there yet
			err = run(ctx, []string{"get", url + "/file"}, &out)
		}
		if err != nil || !bytes.Equal(out.Bytes(), file) {
			t.Errorf("%d bytes, %v", out.Len(), err)
		}
		if err := run(ctx, []string{"get", url + "/none"}, &out); err == nil || !strings.Contains(err.Error(), "404") {
			t.Errorf("a file that does not exist: %v", err)
		}
	})
	stop()
	if err := <-served; err != nil {
		t.Error(err)
	}
}

func TestUsage(t *testing.T) {
	for _, args := range [][]string{nil, {"serve"}, {"put", "x"}} {
		if err := run(t.Context(), args, nil); err == nil || !strings.Contains(err.Error(), "usage") {
			t.Errorf("%q: %v", args, err)
		}
	}
}
