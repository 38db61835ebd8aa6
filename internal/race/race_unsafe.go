//go:build race

package race

import (
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"
)

// Enabled reports whether the program is built with the race detector.
const Enabled = true

// tokens has the tokens of words. Words that share one are merely ordered more than they should be.
var tokens [1 << 16]uint64

func token(p unsafe.Pointer) unsafe.Pointer {
	const golden = 0x9e3779b97f4a7c15
	return unsafe.Pointer(&tokens[uint64(uintptr(p))>>3*golden>>(64-16)])
}

// Release precedes the store of the word at p: what the goroutine has done so far happens before
// each later Acquire of the word. Words in the same eight bytes count as one.
//
//go:noinline
func Release(p unsafe.Pointer) { runtime.RaceReleaseMerge(token(p)) }

// Acquire follows the load of the word at p.
//
//go:noinline
func Acquire(p unsafe.Pointer) { runtime.RaceAcquire(token(p)) }

// Apart calls f in a separate goroutine and waits for it. What the caller has done happens before
// f, but the detector does not learn that f happens before what the caller does next. The
// detector's reports have the stack of the caller: it is where the goroutine was created.
func Apart(f func()) {
	done := make(chan struct{})
	go func() {
		defer func() {
			runtime.RaceDisable()
			close(done) // also on behalf of the caller
			runtime.RaceEnable()
		}()
		f()
	}()
	runtime.RaceDisable()
	<-done
	runtime.RaceEnable()
}

// ignored has the memory whose accesses by the device are ignored.
var ignored struct {
	sync.Mutex
	list atomic.Pointer[[]*span]
}

type span struct{ start, end uintptr }

// Ignore makes the detector ignore what Copy does to b, until stop is called.
func Ignore(b []byte) (stop func()) {
	start := uintptr(unsafe.Pointer(unsafe.SliceData(b)))
	s := &span{start, start + uintptr(len(b))}
	change := func(f func(old []*span) []*span) {
		ignored.Lock()
		defer ignored.Unlock()
		list := f(slices.Clone(spans()))
		ignored.list.Store(&list)
	}
	change(func(all []*span) []*span { return append(all, s) })
	return func() {
		change(func(all []*span) []*span { return slices.DeleteFunc(all, func(x *span) bool { return x == s }) })
	}
}

// spans returns the memory that is ignored now.
func spans() []*span {
	if p := ignored.list.Load(); p != nil {
		return *p
	}
	return nil
}

// Copy copies src to dst for a device, as copy does. One of them is memory of the program.
func Copy(dst, src []byte) {
	list := spans()
	if len(list) == 0 {
		copy(dst, src)
		return
	}
	for n := min(len(dst), len(src)); n > 0; {
		part, hidden := n, false
		for _, b := range [][]byte{dst[:n], src[:n]} {
			p, h := next(list, b)
			hidden = hidden || h
			part = min(part, p)
		}
		if hidden {
			CopyHidden(dst[:part], src[:part])
		} else {
			copy(dst[:part], src[:part])
		}
		dst, src, n = dst[part:], src[part:], n-part
	}
}

// Write tells the detector that a device may write to b from now on.
func Write(b []byte) {
	list := spans()
	for len(b) > 0 {
		n, hidden := next(list, b)
		if !hidden {
			runtime.RaceWriteRange(unsafe.Pointer(unsafe.SliceData(b)), n)
		}
		b = b[n:]
	}
}

// next returns the length of the first part of b that is ignored as a whole, or not at all.
func next(list []*span, b []byte) (n int, hidden bool) {
	start := uintptr(unsafe.Pointer(unsafe.SliceData(b)))
	end := start + uintptr(len(b))
	for _, s := range list {
		switch {
		case s.start <= start && start < s.end:
			return int(min(end, s.end) - start), true
		case start < s.start && s.start < end:
			end = s.start
		}
	}
	return int(end - start), false
}

// CopyHidden copies src to dst, which has room for it, without the detector's knowledge. Eight bytes
// that are aligned are copied as a whole, as a device does, because the program may load them
// atomically.
//
//go:norace
func CopyHidden(dst, src []byte) {
	for len(src) > 0 {
		d, s := unsafe.Pointer(unsafe.SliceData(dst)), unsafe.Pointer(unsafe.SliceData(src))
		if len(src) >= 8 && uintptr(d)%8 == 0 && uintptr(s)%8 == 0 {
			*(*uint64)(d) = *(*uint64)(s)
			dst, src = dst[8:], src[8:]
			continue
		}
		dst[0] = src[0]
		dst, src = dst[1:], src[1:]
	}
}
