// Package ctogo holds tests alone: of docs/c-to-go.md, against the C libraries
// and against the Go packages.
package ctogo
