package tsc

const known = true

// ticks reads the counter.
func ticks() uint64
