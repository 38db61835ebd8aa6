// Package devfile has what the fake devices share that are not built on the software ConnectX: the file of a device,
// whose pages are rings and registers, and the memory of the programs that use it.
package devfile
