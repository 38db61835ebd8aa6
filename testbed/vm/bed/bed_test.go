//go:build vm

package bed

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// These tests set up the smallest part, in a temporary cache. They need the
// mirror of the machine's apt.

// envHelper makes the test binary set up the part and exit.
const envHelper = "GOVERBS_TEST_HELPER"

func TestHelperProcess(t *testing.T) {
	if os.Getenv(envHelper) == "" {
		t.Skip("only run by other tests")
	}
	if _, err := Ensure(t.Context(), os.Stdout, Headers); err != nil {
		t.Fatal(err)
	}
}

func helper(t *testing.T) *exec.Cmd {
	c := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestHelperProcess$", "-test.v")
	c.Env = append(os.Environ(), envHelper+"=1")
	return c
}

// newCache sets an empty cache for the test.
func newCache(t *testing.T) string {
	dir := filepath.Join(t.TempDir(), "cache")
	t.Setenv(EnvCache, dir)
	return dir
}

// parts returns the part directories of a cache, and leftovers of others.
func parts(t *testing.T, cache string) (whole, leftovers []string) {
	entries, err := os.ReadDir(cache)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	for _, e := range entries {
		switch name := e.Name(); {
		case strings.HasPrefix(name, "."):
			leftovers = append(leftovers, name)
		case name != "lock" && name != "apt":
			whole = append(whole, name)
		}
	}
	return whole, leftovers
}

// TestParallelSetUp checks that several processes at the same time cause one
// download.
func TestParallelSetUp(t *testing.T) {
	cache := newCache(t)
	outs := make([]bytes.Buffer, 3)
	var all sync.WaitGroup
	for i := range outs {
		c := helper(t)
		c.Stdout, c.Stderr = &outs[i], &outs[i]
		all.Go(func() {
			if err := c.Run(); err != nil {
				t.Errorf("process %d: %v\n%s", i, err, &outs[i])
			}
		})
	}
	all.Wait()
	downloads := 0
	for i := range outs {
		downloads += strings.Count(outs[i].String(), "ready after")
	}
	if downloads != 1 {
		t.Errorf("%d downloads", downloads)
	}
	whole, leftovers := parts(t, cache)
	if len(whole) != 1 || len(leftovers) != 0 {
		t.Errorf("parts %v, leftovers %v", whole, leftovers)
	}
	offline(t)
}

// offline checks that a warm start needs neither network nor programs, and that
// the part has the unpacked files.
func offline(t *testing.T) {
	t.Setenv(EnvMirror, "file:///nowhere")
	path := os.Getenv("PATH")
	t.Setenv("PATH", "/nowhere")
	var output bytes.Buffer
	b, err := Ensure(t.Context(), &output, Headers)
	if err != nil || output.Len() > 0 {
		t.Fatalf("warm start: %v, output %q", err, &output)
	}
	tree, err := b.Tree(Headers)
	if err != nil || !exists(filepath.Join(tree, "usr/include/rdma/ib_user_verbs.h")) {
		t.Errorf("no RDMA header in %s: %v", tree, err)
	}
	t.Setenv("PATH", path)
	if err := b.Verify(t.Context()); err != nil {
		t.Error(err)
	}
	if err := os.WriteFile(filepath.Join(tree, "usr/include/rdma/ib_user_verbs.h"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := b.Verify(t.Context()); err == nil || !strings.Contains(err.Error(), "ib_user_verbs.h has changed") {
		t.Errorf("a changed file: %v", err)
	}
}

// TestKilledSetUp checks that a killed process leaves no partial part, and that
// the next one completes it.
func TestKilledSetUp(t *testing.T) {
	cache := newCache(t)
	c := helper(t)
	killer := &killAt{text: "unpacking", process: c}
	c.Stdout, c.Stderr = killer, killer
	if err := c.Run(); err == nil {
		t.Fatal("the process was not killed")
	}
	if whole, leftovers := parts(t, cache); len(whole) != 0 || len(leftovers) == 0 {
		t.Fatalf("parts %v, leftovers %v", whole, leftovers)
	}
	if _, err := Ensure(t.Context(), nil, Headers); err != nil {
		t.Fatal(err)
	}
	if whole, leftovers := parts(t, cache); len(whole) != 1 || len(leftovers) != 0 {
		t.Errorf("parts %v, leftovers %v", whole, leftovers)
	}
}

// killAt kills a process when it has printed a text.
type killAt struct {
	text    string
	said    strings.Builder
	process *exec.Cmd
}

func (k *killAt) Write(p []byte) (int, error) {
	k.said.Write(p)
	if strings.Contains(k.said.String(), k.text) {
		return len(p), k.process.Process.Kill()
	}
	return len(p), nil
}

func TestOfflineAndCold(t *testing.T) {
	cache := newCache(t)
	t.Setenv(EnvMirror, "file:///nowhere")
	if _, err := Ensure(t.Context(), nil, Headers); err == nil || !strings.Contains(err.Error(), EnvMirror) {
		t.Errorf("error %v", err)
	}
	if whole, leftovers := parts(t, cache); len(whole)+len(leftovers) != 0 {
		t.Errorf("parts %v, leftovers %v", whole, leftovers)
	}
}

func TestCancelledSetUp(t *testing.T) {
	newCache(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Ensure(ctx, nil, Headers); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
}

// TestForgedMirror checks that a mirror that changes one byte of signed data is
// detected.
func TestForgedMirror(t *testing.T) {
	cache := newCache(t)
	found, err := mirrors(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	real, err := url.Parse(found[0])
	if err != nil || !strings.HasPrefix(real.Scheme, "http") {
		t.Skipf("the mirror %s cannot be proxied by this test", found[0])
	}
	forger := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		reply, err := http.Get(real.JoinPath(r.URL.Path).String())
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		defer reply.Body.Close()
		var body bytes.Buffer
		if _, err := body.ReadFrom(reply.Body); err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		text := strings.Replace(body.String(), "Codename: ", "Codename:  ", 1)
		w.WriteHeader(reply.StatusCode)
		if _, err := w.Write([]byte(text)); err != nil {
			t.Log(err) // apt has failed already
		}
	}))
	defer forger.Close()
	t.Setenv(EnvMirror, forger.URL)
	if _, err := Ensure(t.Context(), nil, Headers); err == nil || !strings.Contains(err.Error(), "signature") {
		t.Errorf("error %v", err)
	}
	if whole, leftovers := parts(t, cache); len(whole)+len(leftovers) != 0 {
		t.Errorf("parts %v, leftovers %v", whole, leftovers)
	}
}
