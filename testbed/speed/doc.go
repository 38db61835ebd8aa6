// Package speed compares programs with their C namesakes: both in one guest, in
// turn, the median of the ratios. Its tests judge nothing: they print, and are
// run by hand (make bench).
package speed
