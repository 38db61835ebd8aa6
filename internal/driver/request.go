package driver

import "sync/atomic"

// A Bind is an OpBindMW request in the kernel's terms.
type Bind struct {
	Type2        bool // the window is of type 2
	Addr, Length uint64
	LKey         uint32 // of the MR
	MWRKey       uint32 // the window's present key
	RKey         uint32 // the new key
	Access       uint32 // uverbs.Access
}

// An AV is the address vector of an [AH] in the provider's format, as written by
// CreateAH.
type AV [6]uint64

// A PD identifies a protection domain by its address: that of the kernel's PD, for
// a parent domain too.
type PD struct {
	Handle uint32 // the kernel's
}

// An AH is the part of an address handle that posts need. It is the first field of
// uverbs.AH, so that a provider can find it in a SendWR without a call: see AHOf
// of internal/provider.
type AH struct {
	pd atomic.Pointer[PD] // nil before Open and after Close
	av AV
}

// AV returns where CreateAH stores the address vector.
func (a *AH) AV() *AV { return &a.av }

// Open allows requests of QPs of pd to use a.
func (a *AH) Open(pd *PD) { a.pd.Store(pd) }

// Close makes posts that use a fail.
func (a *AH) Close() { a.pd.Store(nil) }

// Closed reports whether a is not open.
func (a *AH) Closed() bool { return a.pd.Load() == nil }

// PD returns the PD that a belongs to, or nil if a is not open.
func (a *AH) PD() *PD { return a.pd.Load() }

// For returns the address vector for a request of a QP of pd, which the caller must
// not change. If a is nil, closed, or of another PD, it returns the error of the
// post.
func (a *AH) For(pd *PD) (*AV, error) {
	if a == nil || a.pd.Load() != pd {
		return nil, a.unfit()
	}
	return &a.av, nil
}

// unfit returns the error of a post that cannot use a.
func (a *AH) unfit() error {
	switch {
	case a == nil:
		return ErrNoAH
	case a.Closed():
		return ErrClosedAH
	}
	return ErrForeignAH
}

// The errors of a post whose AH is nil, closed, or of another PD. Package uverbs sets
// them.
var ErrNoAH, ErrClosedAH, ErrForeignAH error
