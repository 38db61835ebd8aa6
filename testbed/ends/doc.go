// Package ends has a test that is compiled against the public API alone: in each package, each end matches the errors
// that the table of docs/levels.md lists, and no others.
package ends
