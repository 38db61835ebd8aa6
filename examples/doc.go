// Package examples contains small programs to read and to run, one in each directory.
package examples
