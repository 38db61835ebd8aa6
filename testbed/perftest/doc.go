// Package perftest holds tests alone: bench/goverbs-perftest against C's
// perftest, in a guest. They have the build tag vm.
package perftest
