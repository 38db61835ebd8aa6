package uverbs

import (
	"sync"
	"sync/atomic"

	"github.com/goverbs/goverbs/internal/driver"
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
	owners  map[*QP]struct{} // QPs on which it may be bound (type 2)
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
	w.object = object{ctx: p.ctx, kind: "MW", rank: rankMW, parents: []*object{&p.object}}
	w.destroy, w.retire = w.dealloc, w.forgetOwners
	if err := w.make(w.alloc); err != nil {
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

func (w *MW) dealloc() error {
	return w.destroyHandle(uapi.UVERBS_OBJECT_MW, uapi.UVERBS_METHOD_MW_DESTROY, uapi.UVERBS_ATTR_DESTROY_MW_HANDLE, noReply, 0)
}

func (w *MW) forgetOwners() error {
	w.ownerMu.Lock()
	defer w.ownerMu.Unlock()
	w.open.Store(false)
	for q := range w.owners {
		q.windowMu.Lock()
		delete(q.windows, w)
		q.windowMu.Unlock()
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

// Bind posts a request to q that binds a type 1 window to the range r, with a new
// key: ibv_bind_mw(3). [MW.RKey] returns the new key at once, but it is valid only
// when the request, an [OpBindMW], has completed. The old key is then invalid.
// Requests posted to q later wait for the bind; requests of other QPs to the same
// peer do not.
//
// The errors are those of [QP.PostSend] for OpBindMW, and [ErrInvalid] for a type 2
// window and for ZeroBased, which type 1 does not support.
func (w *MW) Bind(q *QP, wrID uint64, f SendFlags, r MWRange) error {
	switch {
	case w.typ != MWType1:
		return invalid("bind", w.String(), "a type 2 window is bound by an OpBindMW request: QP.PostSend, SendBatch.BindMW")
	case r.Access&ZeroBased != 0:
		return invalid("bind", w.String(), "a type 1 window cannot be ZeroBased: take type 2")
	}
	w.bindMu.Lock()
	defer w.bindMu.Unlock()
	rkey := IncRKey(w.RKey())
	n, err := q.PostSend(SendWR{WRID: wrID, Opcode: OpBindMW, Flags: f, Bind: &MWBind{MW: w, RKey: rkey, MWRange: r}})
	if n == 1 { // also if the doorbell was refused: the request is in the queue
		w.rkey.Store(rkey)
	}
	return err
}

// Close deallocates the window: ibv_dealloc_mw(3). Peers can no longer use it.
// Close is idempotent. If the kernel refuses, Close returns its error and the
// window stays open.
func (w *MW) Close() error { return w.close() }

// addOwner records that w is or may become bound on q. Only the device knows
// whether a request binds the window, and where it is bound until then. So w stays
// recorded with other QPs too.
func (w *MW) addOwner(q *QP) error {
	w.ownerMu.Lock()
	defer w.ownerMu.Unlock()
	switch _, ok := w.owners[q]; {
	case !w.open.Load():
		return errClosedMW
	case ok:
		return nil
	}
	if w.owners == nil {
		w.owners = make(map[*QP]struct{})
	}
	w.owners[q] = struct{}{}
	q.windowMu.Lock()
	defer q.windowMu.Unlock()
	if q.windows == nil {
		q.windows = make(map[*MW]struct{})
	}
	q.windows[w] = struct{}{}
	return nil
}

// closeWindows closes the type 2 windows that may be bound on q. A QP must not be
// destroyed while a window is bound on it: rxe waits for 50 seconds and then frees
// the QP although the windows still refer to it.
func (q *QP) closeWindows() error {
	q.windowMu.Lock()
	var all []*MW
	for w := range q.windows {
		all = append(all, w)
	}
	q.windowMu.Unlock()
	for _, w := range all {
		if err := w.closeOnce(); err != nil {
			return err
		}
	}
	return nil
}

// resolveBind checks b for a request of q and returns it in the kernel's terms. The errors are
// [ErrNoMW], [ErrForeignMW], [ErrRange] and [ErrClosed].
func (q *QP) resolveBind(b *MWBind) (driver.Bind, error) {
	switch {
	case b == nil || b.MW == nil:
		return driver.Bind{}, ErrNoMW
	case !b.MW.open.Load():
		return driver.Bind{}, errClosedMW
	case b.MW.pd.base() != q.pd.base() || b.MR != nil && b.MR.PD().base() != q.pd.base():
		return driver.Bind{}, ErrForeignMW
	case b.MR == nil && (b.Off != 0 || b.Len != 0 || b.Access != 0):
		return driver.Bind{}, ErrRange
	}
	p := driver.Bind{Type2: b.MW.typ == MWType2, MWRKey: b.MW.RKey(), RKey: b.RKey, Access: uint32(b.Access)}
	if b.MR != nil {
		v := b.MR.view.Load()
		if b.Off < 0 || b.Len < 0 || int64(b.Off) > v.room-int64(b.Len) {
			return driver.Bind{}, ErrRange
		}
		p.Addr, p.Length, p.LKey = v.addr+uint64(b.Off), uint64(b.Len), v.lkey
	}
	if p.Type2 {
		return p, b.MW.addOwner(q)
	}
	return p, nil
}

// errClosedMW is the error of a post with a closed MW. It matches ErrClosed.
var errClosedMW error = &sentinel{"uverbs: the memory window has been closed: by Close, or with a QP that it was bound on", unix.EBADF}
