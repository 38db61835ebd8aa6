package ioctltest

import (
	"github.com/goverbs/goverbs/internal/uapi"
	"golang.org/x/sys/unix"
)

// The states and attribute bits of a QP (enum ib_qp_state, ib_qp_attr_mask).
const (
	reset, initial, rtr, rts, sqd, sqe, failed = 0, 1, 2, 3, 4, 5, 6

	mState, mCurState, mSQDNotify, mAccess, mPKey, mPort, mAV = 1 << 0, 1 << 1, 1 << 2, 1 << 3, 1 << 4, 1 << 5, 1 << 7
	mQKey                                                     = 1 << 6
	mMTU, mTimeout, mRetry, mRNRRetry, mRQPSN, mMaxRd, mAlt   = 1 << 8, 1 << 9, 1 << 10, 1 << 11, 1 << 12, 1 << 13, 1 << 14
	mMinRNR, mSQPSN, mMaxDestRd, mMigration, mDestQPN         = 1 << 15, 1 << 16, 1 << 17, 1 << 18, 1 << 20
	mAll                                                      = 1<<21 - 1
)

// A table is a column of qp_state_table in drivers/infiniband/core/verbs.c: the attributes that a
// transition requires, and those that it allows in addition.
type table map[[2]uint8][2]uint32

var rc = table{
	{reset, reset}:     {},
	{reset, initial}:   {mPKey | mPort | mAccess, 0},
	{initial, initial}: {0, mPKey | mPort | mAccess},
	{initial, rtr}:     {mAV | mMTU | mDestQPN | mRQPSN | mMaxDestRd | mMinRNR, mAlt | mAccess | mPKey},
	{rtr, rts}: {mTimeout | mRetry | mRNRRetry | mSQPSN | mMaxRd, mCurState | mAlt | mAccess |
		mMinRNR | mMigration},
	{rts, rts}: {0, mCurState | mAccess | mAlt | mMigration | mMinRNR},
	{rts, sqd}: {0, mSQDNotify},
	{sqd, rts}: {0, mCurState | mAlt | mAccess | mMinRNR | mMigration},
	{sqd, sqd}: {0, mPort | mAV | mTimeout | mRetry | mRNRRetry | mMaxRd | mMaxDestRd | mAlt | mAccess | mPKey | mMinRNR |
		mMigration},
	{sqe, rts}: {},
}

var uc = table{
	{reset, reset}:     {},
	{reset, initial}:   {mPKey | mPort | mAccess, 0},
	{initial, initial}: {0, mPKey | mPort | mAccess},
	{initial, rtr}:     {mAV | mMTU | mDestQPN | mRQPSN, mAlt | mAccess | mPKey},
	{rtr, rts}:         {mSQPSN, mCurState | mAlt | mAccess | mMigration},
	{rts, rts}:         {0, mCurState | mAccess | mAlt | mMigration},
	{rts, sqd}:         {0, mSQDNotify},
	{sqd, rts}:         {0, mCurState | mAlt | mAccess | mMigration},
	{sqd, sqd}:         {0, mAV | mAlt | mAccess | mPKey | mMigration},
	{sqe, rts}:         {0, mCurState | mAccess},
}

var ud = table{
	{reset, reset}:     {},
	{reset, initial}:   {mPKey | mPort | mQKey, 0},
	{initial, initial}: {0, mPKey | mPort | mQKey},
	{initial, rtr}:     {0, mPKey | mQKey},
	{rtr, rts}:         {mSQPSN, mCurState | mQKey},
	{rts, rts}:         {0, mCurState | mQKey},
	{rts, sqd}:         {0, mSQDNotify},
	{sqd, rts}:         {0, mCurState | mQKey},
	{sqd, sqd}:         {0, mPKey | mQKey},
	{sqe, rts}:         {0, mCurState | mQKey},
}

var xrcInitiator = table{
	{reset, reset}:     {},
	{reset, initial}:   {mPKey | mPort | mAccess, 0},
	{initial, initial}: {0, mPKey | mPort | mAccess},
	{initial, rtr}:     {mAV | mMTU | mDestQPN | mRQPSN, mAlt | mAccess | mPKey},
	{rtr, rts}:         {mTimeout | mRetry | mRNRRetry | mSQPSN | mMaxRd, mCurState | mAlt | mAccess | mMigration},
	{rts, rts}:         {0, mCurState | mAccess | mAlt | mMigration},
	{rts, sqd}:         {0, mSQDNotify},
	{sqd, rts}:         {0, mCurState | mAlt | mAccess | mMigration},
	{sqd, sqd}:         {0, mPort | mAV | mTimeout | mRetry | mRNRRetry | mMaxRd | mAlt | mAccess | mPKey | mMigration},
	{sqe, rts}:         {},
}

var xrcTarget = table{
	{reset, reset}:     {},
	{reset, initial}:   {mPKey | mPort | mAccess, 0},
	{initial, initial}: {0, mPKey | mPort | mAccess},
	{initial, rtr}:     {mAV | mMTU | mDestQPN | mRQPSN | mMaxDestRd | mMinRNR, mAlt | mAccess | mPKey},
	{rtr, rts}:         {mTimeout | mSQPSN, mCurState | mAlt | mAccess | mMinRNR | mMigration},
	{rts, rts}:         {0, mCurState | mAccess | mAlt | mMigration | mMinRNR},
	{rts, sqd}:         {0, mSQDNotify},
	{sqd, rts}:         {0, mCurState | mAlt | mAccess | mMinRNR | mMigration},
	{sqd, sqd}:         {0, mPort | mAV | mTimeout | mMaxDestRd | mAlt | mAccess | mPKey | mMinRNR | mMigration},
	{sqe, rts}:         {},
}

// raw allows only the port and the rate limit.
var raw = table{
	{reset, reset}:     {},
	{reset, initial}:   {mPort, 0},
	{initial, initial}: {},
	{initial, rtr}:     {},
	{rtr, rts}:         {0, rateLimit},
	{rts, rts}:         {0, rateLimit},
	{rts, sqd}:         {},
	{sqd, rts}:         {},
	{sqd, sqd}:         {},
	{sqe, rts}:         {},
}

var tables = map[uint8]table{uapi.IB_UVERBS_QPT_RC: rc, uapi.IB_UVERBS_QPT_UC: uc, uapi.IB_UVERBS_QPT_UD: ud,
	uapi.IB_UVERBS_QPT_XRC_INI: xrcInitiator, uapi.IB_UVERBS_QPT_XRC_TGT: xrcTarget,
	uapi.IB_UVERBS_QPT_RAW_PACKET: raw, DCI: dci, DCT: dct, SRD: srd}

// Allowed reports whether Linux allows a QP of that type to change from one state to another with
// those attributes: ib_modify_qp_is_ok.
func Allowed(qpType, from, to uint8, mask uint32) bool {
	if mask&mCurState != 0 && from != rtr && from != rts && from != sqd && from != sqe {
		return false
	}
	t, ok := tables[qpType][[2]uint8{from, to}]
	if !ok && (to != reset && to != failed || endless(qpType)) {
		return false
	}
	return mask&t[0] == t[0] && mask&^(t[0]|t[1]|mState) == 0
}

func (k *Kernel) modifyQP(m *Msg) error {
	return k.changeQP(request[uapi.IbUverbsModifyQp](m))
}

func (k *Kernel) changeQP(r *uapi.IbUverbsModifyQp) error {
	o, err := k.get("QP", r.QpHandle)
	if err != nil {
		return err
	}
	to := *o.state
	if r.AttrMask&mState != 0 {
		to = r.QpState
	}
	if to > failed || r.AttrMask&^mAll != 0 || !Allowed(o.qpType, *o.state, to, r.AttrMask) {
		return unix.EINVAL
	}
	if r.AttrMask&mQKey != 0 && r.Qkey>>31 != 0 && !k.NetRaw {
		return unix.EPERM
	}
	if r.AttrMask&mPort != 0 && (r.PortNum < 1 || int(r.PortNum) > len(k.Ports)) {
		return unix.EINVAL
	}
	if r.AttrMask&mAV != 0 {
		if err := k.checkPath(r); err != nil {
			return err
		}
	}
	if k.OnModifyQP != nil {
		if err := k.OnModifyQP(r, *o.state, to); err != nil {
			return err
		}
	}
	*o.state = to
	return nil
}

func (k *Kernel) checkPath(r *uapi.IbUverbsModifyQp) error {
	d := &r.Dest
	if d.PortNum < 1 || int(d.PortNum) > len(k.Ports) || d.IsGlobal == 0 && k.needsGRH(d.PortNum) {
		return unix.EINVAL
	}
	if r.AttrMask&mMTU != 0 && r.PathMtu > k.Ports[d.PortNum-1].ActiveMtu {
		return unix.EINVAL
	}
	if d.IsGlobal != 0 && !k.hasGID(d.PortNum, d.SgidIndex) {
		return unix.EINVAL
	}
	return nil
}

// needsGRH reports whether every address on a port must have a GRH:
// rdma_check_ah_attr of the kernel.
func (k *Kernel) needsGRH(port uint8) bool {
	p := &k.Ports[port-1]
	return p.LinkLayer != linkInfiniBand || p.Flags&uapi.IB_UVERBS_QPF_GRH_REQUIRED != 0
}

// linkInfiniBand is IBV_LINK_LAYER_INFINIBAND.
const linkInfiniBand = 1
