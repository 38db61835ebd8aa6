//go:build tools

// Package tools names the programs that the Makefile builds from other modules.
package tools

import (
	_ "github.com/mibk/dupl"
	_ "golang.org/x/vuln/cmd/govulncheck"
	_ "gotest.tools/gotestsum"
	_ "honnef.co/go/tools/cmd/staticcheck"
)
