//go:build race

package perftest

// raceEnabled reports whether the race detector is on. It makes sync.Pool drop objects at
// random, so that allocations cannot be counted.
const raceEnabled = true
