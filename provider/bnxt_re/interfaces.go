package bnxt_re

import "github.com/goverbs/goverbs/internal/driver"

// The optional interfaces that this provider implements.
var (
	_ driver.Inliner  = (*deviceContext)(nil)
	_ driver.Numbered = (*qp)(nil)
	_ driver.Purger   = (*cq)(nil)
	_ driver.Unpolled = (*cq)(nil)
	_ driver.Dropper  = (*srq)(nil)
	_ driver.Limited  = (*srq)(nil)
)
