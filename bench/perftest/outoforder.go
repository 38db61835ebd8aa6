package perftest

import (
	"github.com/goverbs/goverbs/provider/mlx5"
	"github.com/goverbs/goverbs/uverbs"
)

// fitOrder decides whether the QPs are out of order, which the C program calls DDP. Both ends need the same, so the
// default is that of the C program: mlx5 devices use it if the kernel, the firmware and the type of the QPs have it.
func (o *Options) fitOrder(dev *uverbs.Context) error {
	if o.InOrder || o.RDMACM || !o.reliable() || dev.Device().Driver() != "mlx5" {
		return nil
	}
	attr, err := mlx5.QueryDevice(dev)
	if err != nil {
		return err
	}
	limit := attr.OutOfOrder.RC
	if o.dc() {
		limit = attr.OutOfOrder.DCT
	}
	if limit > 0 && o.RxDepth > limit {
		return here("-r", "%d receives are more than the %d that out-of-order queue pairs of %s have: choose fewer, or add "+
			"--no_ddp at both ends", o.RxDepth, limit, o.device)
	}
	o.outOfOrder = limit > 0
	return nil
}

// qpOptions returns the options of the QPs that only mlx5 devices have.
func (o *Options) qpOptions() any {
	if o.outOfOrder {
		return &mlx5.QPOptions{OutOfOrder: true}
	}
	return nil
}
