package siw

import "github.com/goverbs/goverbs/internal/driver"

// The optional interfaces that this provider implements.
var (
	_ driver.MRExtender = (*deviceContext)(nil)
	_ driver.RdAtomic   = (*qp)(nil)
	_ driver.Stateful   = (*qp)(nil)
)
