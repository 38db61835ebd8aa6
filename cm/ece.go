package cm

import (
	"errors"
	"fmt"

	"github.com/goverbs/goverbs/uverbs"
)

// SetLocalECE sets what Connect or Accept sends to the peer: rdma_set_local_ece(3).
// Without it, an id with a QP offers the options that its QP supports, and both sides
// set those that they agree on. A program needs SetLocalECE only for a QP that it has
// created itself, or to disable options. SetLocalECE returns [uverbs.ErrInvalid] if
// VendorID is 0, and [uverbs.ErrClosed] after Close.
func (id *ID) SetLocalECE(e ECE) error {
	const op = "set ECE of"
	if e.VendorID == 0 {
		return invalid(op, "id", "VendorID is 0: name the vendor's number")
	}
	return id.command(op, nil, func() error {
		id.ece.local, id.ece.set = e, true
		return nil
	})
}

// RemoteECE returns what the peer has sent, or zero if it has sent nothing yet:
// rdma_get_remote_ece(3).
func (id *ID) RemoteECE() ECE {
	id.attrMu.Lock()
	defer id.attrMu.Unlock()
	return id.remoteECE
}

// offerECE queries the options of the id's new QP. The caller holds id.mu.
func (id *ID) offerECE(qp *uverbs.QP) error {
	id.ece.qp = ECE{}
	if id.qpType == uverbs.UD {
		return nil
	}
	e, err := qp.QueryECE()
	switch {
	case errors.Is(err, uverbs.ErrNotSupported):
		return nil
	case err != nil:
		return err
	}
	id.ece.qp = ECE(e)
	if !id.ece.set {
		id.ece.local = id.ece.qp
	}
	return nil
}

// setECE requests from the device the options that the peer has sent, without those
// that SetLocalECE has left out. It is called before the QP moves to RTR. The caller
// holds id.mu.
func (id *ID) setECE() error {
	qp := id.qp.Load()
	if qp == nil || id.ece.qp.VendorID == 0 || id.ece.local.VendorID != id.ece.qp.VendorID {
		return nil
	}
	want := uverbs.ECE{VendorID: id.ece.qp.VendorID}
	if id.remoteECE.VendorID == want.VendorID {
		want.Options = id.remoteECE.Options
	}
	if id.ece.set {
		want.Options &= id.ece.local.Options
	}
	if err := qp.SetECE(want); !errors.Is(err, uverbs.ErrNotSupported) {
		return err
	}
	return nil
}

// queryGrantedECE queries which options the device has granted. Accept sends them to the
// peer. The caller holds id.mu.
func (id *ID) queryGrantedECE() error {
	qp := id.qp.Load()
	if qp == nil || id.ece.qp.VendorID == 0 || id.ece.local.VendorID != id.ece.qp.VendorID {
		return nil
	}
	e, err := qp.QueryECE()
	if err == nil {
		id.ece.local.Options = e.Options
	}
	return err
}

// checkECE returns an error if the options in the peer's reply are of another vendor
// than those of the QP. The caller holds id.mu.
func (id *ID) checkECE() error {
	own, peer := id.ece.qp.VendorID, id.remoteECE.VendorID
	if own == 0 || peer == 0 || own == peer || id.ece.set {
		return nil
	}
	return invalid("connect", id.describe(),
		fmt.Sprintf("the peer replies with options of vendor %#x to those of vendor %#x", peer, own))
}
