//go:build !amd64

package tsc

const known = false

func ticks() uint64 { return 0 }
