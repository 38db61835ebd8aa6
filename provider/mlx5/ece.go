package mlx5

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/ioctl"
	"github.com/goverbs/goverbs/internal/uapi"
	"github.com/goverbs/goverbs/uverbs"
)

// vendorID is Mellanox' as PCI has it, which names the options' owner.
const vendorID = 0x15b3

// eceVersion asks CREATE_QP for the options of version 1.
const eceVersion = 1 << 28

// options are a QP's options of enhanced connection establishment.
type options struct {
	has    bool   // the device has any
	got    uint32 // what the device has told
	wanted uint32 // what the next MODIFY_QP asks for; 0: nothing
}

// QueryECE implements uverbs.ProviderECE.
func (q *qp) QueryECE() uverbs.ECE { return uverbs.ECE{VendorID: vendorID, Options: q.ece.got} }

// SetECE implements uverbs.ProviderECE.
func (q *qp) SetECE(e uverbs.ECE) error {
	switch {
	case e.VendorID != vendorID:
		return &uverbs.Error{Op: "set options of", Kind: uverbs.ErrInvalid, Errno: unix.EINVAL,
			Detail: fmt.Sprintf("VendorID is %#x: the device's is %#x, and it knows no other's options", e.VendorID, vendorID)}
	case !q.ece.has:
		return &uverbs.Error{Op: "set options of", Kind: uverbs.ErrNotSupported, Errno: unix.EOPNOTSUPP,
			Detail: "the device or its firmware has no options of enhanced connection establishment: connect without"}
	}
	q.ece.wanted, q.ece.got = e.Options, 0
	return nil
}

// ModifyECE implements uverbs.ProviderECE.
func (q *qp) ModifyECE() ([]byte, int) {
	if q.ece.wanted == 0 {
		return nil, 0
	}
	return ioctl.BytesOf(&uapi.Mlx5IbModifyQp{EceOptions: q.ece.wanted}), ioctl.SizeOf[uapi.Mlx5IbModifyQpResp]()
}

// ModifiedECE implements uverbs.ProviderECE.
func (q *qp) ModifiedECE(reply []byte) {
	q.ece.wanted = 0
	resp := new(uapi.Mlx5IbModifyQpResp)
	copy(ioctl.BytesOf(resp), reply)
	q.ece.got = resp.EceOptions
}
