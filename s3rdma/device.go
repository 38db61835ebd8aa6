package s3rdma

import "github.com/goverbs/goverbs/uverbs"

// A Device is an open RDMA device. Any number of Transports and Handlers share it.
type Device struct{ ctx *uverbs.Context }

// Open opens a device by name, "" being the first with an active port. The errors are those of [uverbs.Open].
func Open(name string) (*Device, error) {
	ctx, err := uverbs.Open(name)
	if err != nil {
		return nil, err
	}
	return &Device{ctx}, nil
}

// Close closes the device. Close its Transports and Handlers first. A nil Device can be closed.
func (d *Device) Close() error {
	if d == nil {
		return nil
	}
	return d.ctx.Close()
}
