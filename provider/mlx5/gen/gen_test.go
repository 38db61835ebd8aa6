package main

import (
	"bytes"
	"os"
	"testing"
)

// TestCurrent checks that the template yields the generated file.
func TestCurrent(t *testing.T) {
	want, err := generate()
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(output)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s is not what encode.tmpl yields: run go generate ./provider/mlx5", output)
	}
}
