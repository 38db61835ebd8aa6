package rxe

import "github.com/goverbs/goverbs/internal/driver"

// The optional interfaces that this provider implements.
var (
	_ driver.Failer   = (*cq)(nil)
	_ driver.Flusher  = (*qp)(nil)
	_ driver.RdAtomic = (*qp)(nil)
)
