//go:build tools

// Package tools names the programs that the Makefile builds from other modules.
package tools

import (
	_ "gotest.tools/gotestsum"
	_ "honnef.co/go/tools/cmd/staticcheck"
)
