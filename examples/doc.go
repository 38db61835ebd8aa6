// Package examples contains small programs to copy from, one in each directory.
package examples
