package mlx5

import (
	"github.com/goverbs/goverbs/internal/driver"
	"github.com/goverbs/goverbs/internal/ioctl"
	"github.com/goverbs/goverbs/uverbs"
)

// withQP calls f with a QP of an mlx5 device. Close of the QP waits for f.
func withQP(qp *uverbs.QP, op string, f func(*deviceContext, driver.QPRef) error) error {
	if qp == nil {
		return invalid(op, "the QP is nil")
	}
	return driver.WithQP(qp, op, func(r driver.QPRef) error {
		c, ok := r.Impl.(*deviceContext)
		if !ok {
			return notSupported(op, "the QP is not of an mlx5 device")
		}
		return f(c, r)
	})
}

// withContext calls f with a context of an mlx5 device. Close of the context waits for f.
func withContext(ctx *uverbs.Context, op string, f func(*deviceContext) error) error {
	if ctx == nil {
		return invalid(op, "the context is nil")
	}
	return driver.WithContext(ctx, op, func(_ *ioctl.Device, impl any) error {
		c, ok := impl.(*deviceContext)
		if !ok {
			return notSupported(op, "the context is not of an mlx5 device")
		}
		return f(c)
	})
}
