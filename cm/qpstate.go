package cm

import (
	"errors"

	"github.com/goverbs/goverbs/internal/uapi"
	"github.com/goverbs/goverbs/internal/verbs"
	"github.com/goverbs/goverbs/uverbs"
	"golang.org/x/sys/unix"
)

// InitQPAttr returns the attributes for [uverbs.QP.Modify] that move a QP of the
// caller to a state: rdma_init_qp_attr(3). Those of INIT are available once the id
// is bound to a device, those of RTR and RTS with the connection request or
// response. InitQPAttr returns [uverbs.ErrInvalid] before that, [ErrDisconnected] if
// the peer has withdrawn its request, and [uverbs.ErrClosed] after Close.
func (id *ID) InitQPAttr(s uverbs.QPState) (uverbs.QPAttr, uverbs.QPMask, error) {
	id.mu.Lock()
	defer id.mu.Unlock()
	if id.isClosed() {
		return uverbs.QPAttr{}, 0, closed("init QP attributes of", id.describe())
	}
	return id.initQPAttr(s)
}

// knownMask has the bits that uverbs knows. Some kernels also set bits that their own
// verbs refuse.
const knownMask = uverbs.MaskDestQPN<<1 - 1

func (id *ID) initQPAttr(s uverbs.QPState) (uverbs.QPAttr, uverbs.QPMask, error) {
	k, err := id.node.file.InitQPAttr(id.kernelID, uint32(s))
	if err != nil {
		return uverbs.QPAttr{}, 0, id.explainInit(err, s)
	}
	return qpAttr(k), uverbs.QPMask(k.QpAttrMask) & knownMask, nil
}

func qpAttr(k *uapi.IbUverbsQpAttr) uverbs.QPAttr {
	return uverbs.QPAttr{
		State:        uverbs.QPState(k.QpState),
		CurState:     uverbs.QPState(k.CurQpState),
		PathMTU:      uverbs.MTU(k.PathMtu),
		PathMigState: uint8(k.PathMigState),
		QKey:         k.Qkey,
		RQPSN:        k.RqPsn,
		SQPSN:        k.SqPsn,
		DestQPN:      k.DestQpNum,
		Access:       uverbs.Access(k.QpAccessFlags),
		AV:           ahAttr(&k.AhAttr),
		AltAV:        ahAttr(&k.AltAhAttr),
		Cap: uverbs.QPCap{
			MaxSendWR:  int(k.MaxSendWr),
			MaxRecvWR:  int(k.MaxRecvWr),
			MaxSendSGE: int(k.MaxSendSge),
			MaxRecvSGE: int(k.MaxRecvSge),
			MaxInline:  int(k.MaxInlineData),
		},
		PKeyIndex:        k.PkeyIndex,
		AltPKeyIndex:     k.AltPkeyIndex,
		EnSQDAsyncNotify: k.EnSqdAsyncNotify != 0,
		SQDraining:       k.SqDraining != 0,
		MaxRdAtomic:      k.MaxRdAtomic,
		MaxDestRdAtomic:  k.MaxDestRdAtomic,
		MinRNRTimer:      k.MinRnrTimer,
		Port:             k.PortNum,
		Timeout:          k.Timeout,
		RetryCount:       k.RetryCnt,
		RNRRetryCount:    k.RnrRetry,
		AltPort:          k.AltPortNum,
		AltTimeout:       k.AltTimeout,
	}
}

func (id *ID) explainInit(err error, s uverbs.QPState) error {
	const op = "init QP attributes of"
	if id.fromRequest {
		return id.withdrawnError(op, id.wrap(op, id.describe(), err, ""))
	}
	detail := ""
	if errors.Is(err, unix.EINVAL) {
		detail = s.String() + " is not known yet: INIT needs a device, RTR and RTS the connection request or response"
	}
	return id.wrap(op, id.describe(), err, detail)
}

// withdrawnError returns err, or ErrDisconnected if err means that the peer has
// ended the handshake.
func (id *ID) withdrawnError(op string, err error) error {
	var e *Error
	if !errors.As(err, &e) || e.Errno != unix.EINVAL || e.Kind == ErrPrivateData {
		return err
	}
	return &Error{Op: op, Object: id.describe(), Kind: ErrDisconnected, Errno: unix.EINVAL,
		Detail: "the request is no longer pending: the peer has withdrawn it or has ended," +
			" or it was already accepted or rejected"}
}

// initQP moves a new QP to a state in which receives can be posted: INIT, or RTS for
// UD.
func (id *ID) initQP() error {
	if err := id.advance(uverbs.StateInit, 0); err != nil || id.qpType != uverbs.UD {
		return err
	}
	if err := id.modifyQP(uverbs.QPAttr{State: uverbs.StateRTR}, uverbs.MaskState); err != nil {
		return err
	}
	return id.modifyQP(uverbs.QPAttr{State: uverbs.StateRTS}, uverbs.MaskState|uverbs.MaskSQPSN)
}

// advance moves the QP to a state with the attributes of the connection manager.
// Unless it is the maximum, depth replaces the number of READs and atomics.
func (id *ID) advance(s uverbs.QPState, depth uint8) error {
	if id.qp.Load() == nil {
		return nil
	}
	a, m, err := id.initQPAttr(s)
	if err != nil {
		return err
	}
	switch {
	case s == uverbs.StateRTR && depth != MaxRespRes:
		a.MaxDestRdAtomic = depth
	case s == uverbs.StateRTS && depth != MaxInitDepth:
		a.MaxRdAtomic = depth
	}
	if s == uverbs.StateRTR {
		id.path.Apply(&a.AV)
	}
	return id.modifyQP(a, m)
}

func (id *ID) toRTR(resources uint8) error {
	// Repeat INIT: after CreateQP, the connection manager may have learned of more
	// access rights that the peer needs.
	if err := id.advance(uverbs.StateInit, 0); err != nil {
		return err
	}
	if err := id.setECE(); err != nil {
		return err
	}
	if err := id.advance(uverbs.StateRTR, resources); err != nil {
		return err
	}
	return id.queryGrantedECE()
}

func (id *ID) toRTS(depth uint8) error {
	if err := id.advance(uverbs.StateRTS, depth); err != nil {
		return err
	}
	id.establishedRNIC(depth)
	return nil
}

// establishedRNIC moves the QP to RTS if the device is one of iWARP, whose kernel moves its part with the connection.
// depth is the number of READs that the connection allows.
func (id *ID) establishedRNIC(depth uint8) {
	if qp := id.qp.Load(); qp != nil && id.dev != nil && id.dev.rnic {
		verbs.Established(qp, depth)
	}
}

var toErr = uverbs.QPAttr{State: uverbs.StateErr}

// modifyQP modifies the id's QP, if there is one.
func (id *ID) modifyQP(a uverbs.QPAttr, m uverbs.QPMask) error {
	qp := id.qp.Load()
	if qp == nil {
		return nil
	}
	err := qp.Modify(a, m)
	if a.State == uverbs.StateErr && errors.Is(err, uverbs.ErrClosed) {
		return nil // by the program
	}
	return err
}
