package mlx5

import (
	"github.com/goverbs/goverbs/internal/ioctl"
	"github.com/goverbs/goverbs/internal/uapi"
)

// vendorID is the PCI vendor ID of Mellanox, which identifies the owner of the options.
const vendorID = 0x15b3

// eceVersion requests options of version 1 in CREATE_QP.
const eceVersion = 1 << 28

// options are the options of enhanced connection establishment (ECE) of a QP.
type options struct {
	supported bool   // the device has options
	enabled   uint32 // the options that the device reported
	requested uint32 // the options that the next MODIFY_QP requests; 0: none
}

// QueryECE implements driver.ECE.
func (q *qp) QueryECE() (vendor, enabled uint32) { return vendorID, q.ece.enabled }

// SetECE implements driver.ECE.
func (q *qp) SetECE(vendor, wanted uint32) error {
	switch {
	case vendor != vendorID:
		return invalid("set options", "VendorID is %#x: the device's is %#x, and it knows no other's options", vendor,
			vendorID)
	case !q.ece.supported:
		return notSupported("set options",
			"the device or its firmware has no options of enhanced connection establishment: connect without")
	}
	q.ece.requested, q.ece.enabled = wanted, 0
	return nil
}

// ModifyECE implements driver.ECE.
func (q *qp) ModifyECE(toInit bool) ([]byte, int) {
	if q.ece.requested == 0 && !q.outOfOrder {
		return nil, 0
	}
	return q.modifyInput(toInit)
}

// ModifiedECE implements driver.ECE.
func (q *qp) ModifiedECE(reply []byte) {
	if q.ece.requested == 0 {
		return
	}
	q.ece.requested = 0
	resp := new(uapi.Mlx5IbModifyQpResp)
	copy(ioctl.BytesOf(resp), reply)
	q.ece.enabled = resp.EceOptions
}
