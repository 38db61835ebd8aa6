// Package race tells Go's race detector about the synchronization between a program and a device.
// Without the detector, its functions do nothing.
//
// The detector knows memory of the Go heap only, but queues are in mappings. Therefore each word of
// a queue has a token, and a program and the device in memory synchronize by the token: the side
// that stores the word releases it, and the side that loads it acquires it.
package race
