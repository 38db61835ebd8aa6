package irdma

import "github.com/goverbs/goverbs/internal/driver"

// The optional interfaces that this provider implements.
var (
	_ driver.Inliner    = (*deviceContext)(nil)
	_ driver.MRExtender = (*deviceContext)(nil)
	_ driver.Purger     = (*cq)(nil)
	_ driver.Unpolled   = (*cq)(nil)
	_ driver.Stateful   = (*qp)(nil)
)
