// Package ctogo contains only tests. They compare docs/c-to-go.md with the C
// libraries and with the Go packages.
package ctogo
