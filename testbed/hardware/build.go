package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

const module = "github.com/goverbs/goverbs/"

// The contents of the directory: tests by the name of their binary, and programs.
var (
	suites = map[string]string{
		"uverbs.test":   "uverbs/devicetest",
		"mlx5.test":     "provider/mlx5",
		"devx.test":     "provider/mlx5/devx",
		"rxe.test":      "provider/rxe",
		"siw.test":      "provider/siw",
		"bnxt_re.test":  "provider/bnxt_re",
		"irdma.test":    "provider/irdma",
		"cm.test":       "cm/devicetest",
		"examples.test": "cm",
	}
	programs = map[string]string{
		"hardware": "testbed/hardware",
		"devinfo":  "cmd/devinfo",
		"wrcost":   "bench/wrcost",
		"perftest": "bench/goverbs-perftest",
	}
)

// inC is the benchmark that is compiled on the machine with the device, if that has
// a C compiler and libibverbs.
const inC = "speed/testdata/wrcost.c"

// build creates the directory. The working directory must be the root of the module
// of the test bed.
func build(ctx context.Context, dir string) error {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for name, pkg := range suites {
		if err := goTool(ctx, "test", "-c", "-tags=device", "-o", filepath.Join(dir, name), module+pkg); err != nil {
			return err
		}
	}
	for name, pkg := range programs {
		if err := goTool(ctx, "build", "-o", filepath.Join(dir, name), module+pkg); err != nil {
			return err
		}
	}
	headers, err := filepath.Glob(filepath.Join(filepath.Dir(inC), "*.h"))
	if err != nil {
		return err
	}
	for _, file := range append(headers, inC) {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, filepath.Base(file)), text, 0o644); err != nil {
			return err
		}
	}
	return nil
}

func goTool(ctx context.Context, args ...string) error {
	c := exec.CommandContext(ctx, "go", args...)
	c.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("%v: %w\n%s", c, err, out)
	}
	return nil
}
