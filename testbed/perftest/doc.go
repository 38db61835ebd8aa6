// Package perftest contains only tests, with the build tag vm. They run
// bench/goverbs-perftest with C's perftest in a guest, and package bench/perftest with it in memory.
package perftest
