package ioctltest

import (
	"github.com/goverbs/goverbs/internal/uapi"
	"golang.org/x/sys/unix"
)

// The types of QPs of drivers in this package. Commands name both IB_QPT_DRIVER, and
// [Kernel.DriverQP] tells them apart.
const (
	DCT uint8 = 0xf1
	DCI uint8 = 0xf2
	SRD uint8 = 0xe0 // of efa
)

// dci and dct are those of mlx5_ib: modify_dci_qp_is_ok and mlx5_ib_modify_dct.
var (
	dci = table{
		{reset, initial}:   {mPKey | mPort, 0},
		{initial, initial}: {0, mPKey | mPort},
		{initial, rtr}:     {mMTU, mPKey | mAV},
		{rtr, rts}:         {mTimeout | mRetry | mRNRRetry | mMaxRd | mSQPSN, mMinRNR},
		{rts, rts}:         {0, mMinRNR},
	}
	dct = table{
		{reset, initial}: {mAccess | mPKey | mPort, 0},
		{initial, rtr}:   {mMinRNR | mAV | mMTU, 0},
	}
	// srd is srd_qp_state_table of the efa driver.
	srd = table{
		{reset, reset}:     {},
		{reset, initial}:   {mPKey | mPort | mQKey, 0},
		{initial, initial}: {0, mPKey | mPort | mQKey},
		{initial, rtr}:     {0, mPKey | mQKey},
		{rtr, rts}:         {mSQPSN, mCurState | mQKey | mRNRRetry},
		{rts, rts}:         {0, mCurState | mQKey},
		{rts, sqd}:         {0, mSQDNotify},
		{sqd, rts}:         {0, mCurState | mQKey},
		{sqd, sqd}:         {0, mPKey | mQKey},
		{sqe, rts}:         {0, mCurState | mQKey},
	}
)

// endless reports whether a QP of a type never goes to RESET or ERR.
func endless(qpType uint8) bool { return qpType == DCT }

// typeOfQP returns the type of the QP that a command creates.
func (k *Kernel) typeOfQP(m *Msg) (uint8, error) {
	t := uint8(m.Uint(uapi.UVERBS_ATTR_CREATE_QP_TYPE))
	if t == uapi.IB_UVERBS_QPT_DRIVER && k.DriverQP != nil {
		if t = k.DriverQP(m.data[uapi.UVERBS_ATTR_UHW_IN]); t == 0 {
			return 0, refuse(unix.EINVAL, "the driver has no such QP")
		}
	}
	return t, k.checkType(t)
}

// queryDCT checks a query of a DCT: mlx5_ib_dct_query_qp.
func (o *object) queryDCT(mask uint32) error {
	const has = mState | mAccess | mPort | mMinRNR | mAV | mMTU | mPKey
	if mask&^has != 0 || *o.state != rtr {
		return unix.EINVAL
	}
	return nil
}
