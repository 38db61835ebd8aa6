package rxe

import "github.com/goverbs/goverbs/internal/driver"

// The optional interfaces that this provider implements.
var (
	_ driver.Flusher  = (*qp)(nil)
	_ driver.RdAtomic = (*qp)(nil)
)
