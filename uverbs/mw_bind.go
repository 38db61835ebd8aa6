package uverbs

import "github.com/goverbs/goverbs/internal/driver"

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
		return invalid("bind", w.String(), "a type 1 window cannot be ZeroBased: use type 2")
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

// bind resolves the window and the region of an OpBindMW request.
func (q *QP) bind(wr *SendWR) (driver.Bind, error) { return q.resolveBind(wr.Bind) }

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
		return p, q.windows.add(b.MW)
	}
	return p, nil
}
