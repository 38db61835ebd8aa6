package fakemlx5

import (
	"math/bits"

	"github.com/goverbs/goverbs/internal/ioctl"
	"github.com/goverbs/goverbs/internal/sim/call"
	"github.com/goverbs/goverbs/internal/sim/connectx/engine"
	"github.com/goverbs/goverbs/internal/uapi"
	"github.com/goverbs/goverbs/uverbs"
)

// segmentSize is the size of an SGE in a receive.
const segmentSize = 16

// A creation is what QUERY_QP returns and the device has in another form, or not at all.
type creation struct {
	receives  uint32 // size of the receive queue
	recvSGEs  uint32
	signalAll bool
	dest, alt uapi.IbUverbsQpDest
	access    uint32
	port      uint8
}

func creationOf(c ioctl.Call) (n creation) {
	if u := call.In[uapi.Mlx5IbCreateQp](c, uapi.UVERBS_ATTR_UHW_IN); u.RqWqeCount > 0 {
		n.receives, n.recvSGEs = u.RqWqeCount, 1<<u.RqWqeShift/segmentSize
	}
	n.signalAll = call.Num(c, uapi.UVERBS_ATTR_CREATE_QP_FLAGS)&uapi.IB_UVERBS_QP_CREATE_SQ_SIG_ALL != 0
	return n
}

// modified notes the attributes that the device has in another form.
func (n *creation) modified(m uverbs.QPMask, r *uapi.IbUverbsModifyQp) {
	if m&uverbs.MaskAV != 0 {
		n.dest = r.Dest
	}
	if m&uverbs.MaskAltPath != 0 {
		n.alt = r.AltDest
	}
	if m&uverbs.MaskAccess != 0 {
		n.access = r.QpAccessFlags
	}
	if m&uverbs.MaskPort != 0 {
		n.port = r.PortNum
	}
}

// query completes a reply to QUERY_QP. The limits of sends are left to the library.
func (n *creation) query(r *uapi.IbUverbsQueryQpResp) {
	r.MaxRecvWr, r.MaxRecvSge = n.receives, n.recvSGEs
	if n.signalAll {
		r.SqSigAll = 1
	}
	r.Dest, r.AltDest, r.QpAccessFlags, r.PortNum = n.dest, n.alt, n.access, n.port
	r.AltPortNum = n.alt.PortNum
}

// states has the kernel's states by the device's.
var states = map[engine.QPState]uverbs.QPState{
	engine.Reset:    uverbs.StateReset,
	engine.Init:     uverbs.StateInit,
	engine.RTR:      uverbs.StateRTR,
	engine.RTS:      uverbs.StateRTS,
	engine.SQE:      uverbs.StateSQE,
	engine.SQD:      uverbs.StateSQD,
	engine.Draining: uverbs.StateSQD,
	engine.Err:      uverbs.StateErr,
}

// mtuCode returns the kernel's code of an MTU in bytes, which may be 0: enum ib_mtu.
func mtuCode(n int) uint8 { return uint8(max(bits.Len(uint(n))-8, 0)) }

// queryQP completes the reply to QUERY_QP with what the device has.
func (k *Kernel) queryQP(h uint32, r *uapi.IbUverbsQueryQpResp) {
	if q := k.raw.qps[h]; q != nil {
		q.creation.query(r)
		return
	}
	if d := k.dcts[h]; d != nil {
		d.query(r)
		return
	}
	q := k.QPs[h]
	q.creation.query(r)
	a, err := k.adapter.HCA.QueryQP(q.Number)
	if err != nil {
		k.check(err)
		return
	}
	r.QpState, r.CurQpState = uint8(states[a.State]), uint8(states[a.State])
	if a.State == engine.Draining {
		r.SqDraining = 1
	}
	r.Qkey, r.DestQpNum = a.QKey, a.RemoteQPN
	r.RqPsn, r.SqPsn = a.RecvPSN, a.SendPSN
	r.PkeyIndex, r.AltPkeyIndex = a.Primary.PKeyIndex, a.Alternate.PKeyIndex
	r.PathMtu = mtuCode(a.MTU)
	r.PathMigState = uint8(a.Migration)
	r.MaxRdAtomic, r.MaxDestRdAtomic = uint8(a.MaxInitiate), uint8(a.MaxRespond)
	r.MinRnrTimer, r.Timeout, r.RetryCnt, r.RnrRetry = a.MinRNRTimer, a.AckTimeout, a.RetryCount, a.RNRRetry
}
