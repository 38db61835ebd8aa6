package uverbs

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/goverbs/goverbs/internal/ioctl"
	"github.com/goverbs/goverbs/internal/uapi"
	"golang.org/x/sys/unix"
)

// MWType is the type of a memory window. The values are those of ibv_mw_type.
type MWType uint8

// The types of ibv_alloc_mw(3).
const (
	// MWType1 windows are bound with [MW.Bind]. Peers may use them on any QP of the
	// window's PD.
	MWType1 MWType = 1
	// MWType2 windows are bound with an [OpBindMW] request, with a key that the
	// program chooses. Peers may use them on the QP of that request, until an
	// [OpLocalInv] on this QP or an [OpSendInv] of the peer invalidates the key. A
	// window is closed together with any QP that it was bound on, even if the bind
	// failed.
	MWType2 MWType = 2
)

// An MW is a memory window: an RKey for a part of an MR, granted and revoked by
// work requests. Its methods may be called from any number of goroutines.
type MW struct {
	object
	pd   *PD
	typ  MWType
	rkey atomic.Uint32
	open atomic.Bool

	bindMu sync.Mutex // serialises Bind

	ownerMu sync.Mutex
	owners  map[*windowSet]struct{} // of the QPs on which it may be bound (type 2)
}

// A windowSet contains the type 2 windows that may be bound on a QP.
type windowSet struct {
	mu  sync.Mutex
	all map[*MW]struct{}
}

// An MWRange describes the memory that a memory window opens to peers: struct
// ibv_mw_bind_info.
type MWRange struct {
	// MR is the region that contains the memory. It needs MWBindAccess, and
	// LocalWrite if Access lets peers write. If MR is nil and the other fields are
	// zero, a type 1 window is unbound.
	MR *MR
	// Off and Len are the range within the MR, in bytes.
	Off, Len int
	// Access is what peers may do: RemoteRead, RemoteWrite, RemoteAtomic. With
	// ZeroBased, which is for type 2 only, the address of the first byte is 0.
	Access Access
}

// An MWBind describes what an [OpBindMW] request binds.
type MWBind struct {
	MW *MW
	// RKey is the window's new key. It must be [MW.RKey] except for the low 8 bits,
	// which are free. [IncRKey] returns such a key.
	RKey uint32
	MWRange
}

// IncRKey returns the next key of a memory window: ibv_inc_rkey(3). Only the low 8
// bits change; they wrap around.
func IncRKey(rkey uint32) uint32 { return rkey&^0xff | (rkey+1)&0xff }

// AllocMW allocates a memory window, which is not bound yet: ibv_alloc_mw(3).
//
// It returns [ErrClosed] after Close of the PD, [ErrInvalid] if typ is not MWType1
// or MWType2, [ErrNotSupported] if the device has no windows of this type, or the
// kernel's error: ENOMEM if the device has no windows left (DeviceAttr.MaxMW).
func (p *PD) AllocMW(typ MWType) (*MW, error) {
	if typ != MWType1 && typ != MWType2 {
		return nil, invalid("allocate memory window", p.String(), "the type must be MWType1 or MWType2: "+sitoa(int(typ)))
	}
	w := &MW{pd: p, typ: typ}
	w.object = object{ctx: p.ctx, life: w, kind: "MW", rank: rankMW}
	w.addParents(&p.object)
	if err := w.createWith(w.alloc); err != nil {
		return nil, err
	}
	w.open.Store(true)
	return w, nil
}

func (w *MW) alloc() error {
	cmd := ioctl.Get()
	defer cmd.Put()
	resp := ioctl.Write[uapi.IbUverbsAllocMwResp](cmd, uapi.IB_USER_VERBS_CMD_ALLOC_MW,
		&uapi.IbUverbsAllocMw{PdHandle: w.pd.handle, MwType: uint8(w.typ)})
	if err := w.ctx.dev.Do(cmd); err != nil {
		return w.ctx.explainLimit("allocate memory window", err, "", 0, func(*DeviceAttr) int { return 0 })
	}
	w.handle, w.number = resp.MwHandle, resp.MwHandle
	w.rkey.Store(resp.Rkey)
	return nil
}

func (w *MW) destroy() error {
	return w.destroyHandle(uapi.UVERBS_OBJECT_MW, uapi.UVERBS_METHOD_MW_DESTROY, uapi.UVERBS_ATTR_DESTROY_MW_HANDLE)
}

func (w *MW) retire() error {
	w.ownerMu.Lock()
	defer w.ownerMu.Unlock()
	w.open.Store(false)
	for s := range w.owners {
		s.mu.Lock()
		delete(s.all, w)
		s.mu.Unlock()
	}
	w.owners = nil
	return nil
}

// PD returns the PD of w.
func (w *MW) PD() *PD { return w.pd }

// Type returns the type of w.
func (w *MW) Type() MWType { return w.typ }

// RKey returns the window's key, for requests of peers once the window is bound.
// [MW.Bind] changes it.
func (w *MW) RKey() uint32 { return w.rkey.Load() }

// SetRKey records the window's current key. Call it after an [OpBindMW] request has
// changed the key; otherwise the next such request fails. Also call it to restore
// the key if the request of [MW.Bind] completes with an error.
func (w *MW) SetRKey(rkey uint32) { w.rkey.Store(rkey) }

// Close deallocates the window: ibv_dealloc_mw(3). Peers can no longer use it.
// Close is idempotent. If the kernel refuses, Close returns its error and the
// window stays open.
func (w *MW) Close() error { return w.close() }

// add records that w is or may become bound on the QP. Only the device knows
// whether a request binds the window, and where it is bound until then. So w stays
// recorded with other QPs too.
func (s *windowSet) add(w *MW) error {
	w.ownerMu.Lock()
	defer w.ownerMu.Unlock()
	switch _, ok := w.owners[s]; {
	case !w.open.Load():
		return errClosedMW
	case ok:
		return nil
	}
	if w.owners == nil {
		w.owners = make(map[*windowSet]struct{})
	}
	w.owners[s] = struct{}{}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all == nil {
		s.all = make(map[*MW]struct{})
	}
	s.all[w] = struct{}{}
	return nil
}

// close closes the windows. A QP must not be destroyed while a window is bound on
// it: rxe waits for 50 seconds and then frees the QP although the windows still
// refer to it.
func (s *windowSet) close() error {
	s.mu.Lock()
	var all []*MW
	if len(s.all) > 0 {
		all = slices.Collect(maps.Keys(s.all))
	}
	s.mu.Unlock()
	for _, w := range all {
		if err := w.closeOnce(); err != nil {
			return err
		}
	}
	return nil
}

// errClosedMW is the error of a post with a closed MW. It matches ErrClosed.
var errClosedMW error = &sentinel{
	text:  "uverbs: the memory window has been closed: by Close, or with a QP that it was bound on",
	errno: unix.EBADF,
	kinds: []error{ErrClosed},
}
