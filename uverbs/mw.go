package uverbs

import (
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
	// MWType1 is bound by [MW.Bind], and peers use it on any QP of its PD.
	MWType1 MWType = 1
	// MWType2 is bound by an [OpBindMW] request, with a key of the program's
	// choice, and peers use it on the QP that it was bound on, until an
	// [OpLocalInv] there or an [OpSendInv] of the peer's takes it back. It is
	// closed with any QP that it was bound on, or that refused to.
	MWType2 MWType = 2
)

// An MW is a memory window: an RKey for a part of an MR, which is given and
// taken back by work requests. Its methods may be called from any number of
// goroutines.
type MW struct {
	object
	pd   *PD
	typ  MWType
	rkey atomic.Uint32
	open atomic.Bool

	bindMu sync.Mutex // serialises Bind

	ownerMu sync.Mutex
	owners  map[*QP]struct{} // on which it may be bound, type 2
}

// An MWRange is what a memory window opens to peers: struct ibv_mw_bind_info.
type MWRange struct {
	// MR has the memory. It needs MWBindAccess, and LocalWrite where Access
	// lets peers write. Nil, with nothing else set, closes a type 1 window.
	MR *MR
	// Off and Len are the range in the MR, in bytes.
	Off, Len int
	// Access is what peers may do: RemoteRead, RemoteWrite, RemoteAtomic. With
	// ZeroBased, for type 2, they name the first byte by the address 0.
	Access Access
}

// An MWBind is what an [OpBindMW] request does.
type MWBind struct {
	MW *MW
	// RKey is the key that the window gets: of [MW.RKey] all but the low 8 bits,
	// which are free. [IncRKey] makes one.
	RKey uint32
	MWRange
}

// IncRKey is the next key of a memory window: ibv_inc_rkey(3). Its low 8 bits
// count round.
func IncRKey(rkey uint32) uint32 { return rkey&^0xff | (rkey+1)&0xff }

// AllocMW makes a memory window, which is bound to nothing: ibv_alloc_mw(3).
//
// The errors: [ErrClosed]; [ErrInvalid] for another type; [ErrNotSupported]
// where the device has none of that type; what the kernel said, ENOMEM when the
// device has no more (DeviceAttr.MaxMW).
func (p *PD) AllocMW(typ MWType) (*MW, error) {
	if typ != MWType1 && typ != MWType2 {
		return nil, invalid("allocate memory window", p.String(), "the type must be MWType1 or MWType2: "+sitoa(int(typ)))
	}
	w := &MW{pd: p, typ: typ}
	w.object = object{ctx: p.ctx, kind: "MW", rank: rankMW, parents: []*object{&p.object}}
	w.destroy, w.retire = w.dealloc, w.leave
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

func (w *MW) leave() error {
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

// PD returns the domain that w was made by.
func (w *MW) PD() *PD { return w.pd }

// Type is the type that w was made with.
func (w *MW) Type() MWType { return w.typ }

// RKey names the window to peers, once it is bound. [MW.Bind] changes it.
func (w *MW) RKey() uint32 { return w.rkey.Load() }

// SetRKey notes the key that the window has: the one that an [OpBindMW] request
// gave it. The next such request on the window goes wrong without. It is also
// how to take back what [MW.Bind] noted, after a completion with an error.
func (w *MW) SetRKey(rkey uint32) { w.rkey.Store(rkey) }

// Bind posts a request to q that opens the range r to peers by a new key, of a
// type 1 window: ibv_bind_mw(3). The key is noted at once, see [MW.RKey]; it
// counts when the request, an [OpBindMW], has completed. What the key before it
// opened is closed then. Requests posted to q later do not begin before that,
// but others to the peer are not held up.
//
// The errors are those of [QP.PostSend] for OpBindMW, and [ErrInvalid] for a type
// 2 window and for ZeroBased, which type 1 does not have.
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
	if n == 1 { // with an error: the doorbell was refused, the request is in the queue
		w.rkey.Store(rkey)
	}
	return err
}

// Close frees the window: ibv_dealloc_mw(3). Peers cannot use it any more. It
// is idempotent. The error is what the kernel says when it refuses; the window
// lives on then.
func (w *MW) Close() error { return w.close() }

// belong notes that w is bound on q, or may come to be. Whether a request binds
// it, and where it is bound until then, the device alone knows: other QPs keep
// it too.
func (w *MW) belong(q *QP) error {
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

// closeWindows closes the type 2 windows that may be bound on q. The kernel
// leaves a QP in peace as long as windows are bound on it: rxe waits for 50
// seconds, and then frees it under them.
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

// A ProviderBind is what an OpBindMW request says, in the kernel's terms.
type ProviderBind struct {
	Type         MWType
	Addr, Length uint64
	LKey         uint32 // of the MR
	MWRKey       uint32 // the window's key until now
	RKey         uint32 // and from then on
	Access       Access
}

// ProviderBindOf checks what b says for a request of a QP, and returns it in the
// kernel's terms. The errors: [ErrNoMW], [ErrForeignMW], [ErrRange] and
// [ErrClosed].
func ProviderBindOf(b *MWBind, q *QP) (ProviderBind, error) {
	switch {
	case b == nil || b.MW == nil:
		return ProviderBind{}, ErrNoMW
	case !b.MW.open.Load():
		return ProviderBind{}, errClosedMW
	case b.MW.pd.base() != q.pd.base() || b.MR != nil && b.MR.PD().base() != q.pd.base():
		return ProviderBind{}, ErrForeignMW
	case b.MR == nil && (b.Off != 0 || b.Len != 0 || b.Access != 0):
		return ProviderBind{}, ErrRange
	}
	p := ProviderBind{Type: b.MW.typ, MWRKey: b.MW.RKey(), RKey: b.RKey, Access: b.Access}
	if b.MR != nil {
		v := b.MR.view.Load()
		if b.Off < 0 || b.Len < 0 || int64(b.Off) > v.room-int64(b.Len) {
			return ProviderBind{}, ErrRange
		}
		p.Addr, p.Length, p.LKey = v.addr+uint64(b.Off), uint64(b.Len), v.lkey
	}
	if b.MW.typ == MWType2 {
		return p, b.MW.belong(q)
	}
	return p, nil
}

// errClosedMW is what a post with a closed MW answers. It matches ErrClosed.
var errClosedMW error = &sentinel{"uverbs: the memory window has been closed: by Close, or with a QP that it was bound on", unix.EBADF}
