// Package examples holds small programs to read and to run, a directory each.
package examples
