//go:build vm && soak

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestSoakPyverbs runs rdma-core's tests at one place, and compares the results
// with the page.
func TestSoakPyverbs(t *testing.T) {
	p := place{"6.12", roce}
	page, err := os.ReadFile(filepath.Join("..", "..", "..", pageFile))
	if err != nil {
		t.Fatal(err)
	}
	rec, err := readPage(string(page), p)
	if err != nil {
		t.Fatal(err)
	}
	var said strings.Builder
	r := newReport()
	if err := r.visit(t.Context(), p, nil, &said); err != nil {
		t.Fatalf("%v\n%s", err, said.String())
	}
	if err := r.behind(p, rec); err != nil {
		t.Error(err)
	}
	t.Log(r.summary())
}
