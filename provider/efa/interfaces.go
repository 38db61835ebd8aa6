package efa

import "github.com/goverbs/goverbs/internal/driver"

// The optional interfaces that this provider implements.
var (
	_ driver.SRDs     = (*deviceContext)(nil)
	_ driver.Stateful = (*qp)(nil)
	_ driver.Purger   = (*cq)(nil)
	_ driver.Unpolled = (*cq)(nil)
)
