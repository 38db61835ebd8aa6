//go:build !race

package race

import "unsafe"

// Enabled reports whether the program is built with the race detector.
const Enabled = false

// Release precedes the store of the word at p.
func Release(p unsafe.Pointer) {}

// Acquire follows the load of the word at p.
func Acquire(p unsafe.Pointer) {}

// Apart calls f.
func Apart(f func()) { f() }

// Ignore does nothing.
func Ignore(b []byte) (stop func()) { return func() {} }

// Copy copies src to dst.
func Copy(dst, src []byte) { copy(dst, src) }

// Write does nothing.
func Write(b []byte) {}

// CopyHidden copies src to dst.
func CopyHidden(dst, src []byte) { copy(dst, src) }
