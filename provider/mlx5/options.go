package mlx5

import (
	"github.com/goverbs/goverbs/internal/provider"
	"github.com/goverbs/goverbs/uverbs"
)

// QPOptions are the options of QPs that only mlx5 devices have: struct mlx5dv_qp_init_attr of mlx5dv_create_qp(3).
// [uverbs.QPConfig.Options] takes a pointer to one. CreateQP reads it and does not keep it.
type QPOptions struct {
	// OutOfOrder permits packets of the QP to overtake others, as on networks that spread the packets of a connection
	// over several paths (MLX5DV_QP_CREATE_OOO_DP). The data of SENDs and WRITEs may arrive in any order, and messages
	// may use receives in another order than they were posted; completions keep the order of the messages. So a
	// program must find the receive of a completion by its WRID, and must not expect that the last byte of a WRITE is
	// written last. READs and atomics are executed in order, but the data of READs may arrive in any order. Receives
	// should have one size, because a message may use any of them.
	//
	// Both ends need the option, of an RC connection or of an XRC one, or all DCIs and DCTs that communicate. The
	// receive queue uses twice the memory, and the maximum of QPConfig.MaxRecvWR is smaller: [QueryDevice] returns it.
	// If the device, its firmware or the kernel (before Linux 6.13) lacks the option for this type of QP, CreateQP
	// returns an error that matches [uverbs.ErrNotSupported].
	OutOfOrder bool

	// ScatterToCQE determines which short messages and results arrive in completions. It has no effect on QPs of other
	// types than RC and UC, and while the Context has memory that only the device can write: see "Short messages" in the
	// package documentation.
	ScatterToCQE ScatterToCQE
}

// A ScatterToCQE says which short data the device writes to completions instead of memory.
type ScatterToCQE uint8

// The values of ScatterToCQE.
const (
	// ScatterDefault: messages and, with QPConfig.SignalAll, the results of READs and atomics. With
	// MLX5_SCATTER_TO_CQE=0 in the environment it is ScatterDisabled.
	ScatterDefault ScatterToCQE = iota
	// ScatterDisabled: none (MLX5DV_QP_CREATE_DISABLE_SCATTER_TO_CQE).
	ScatterDisabled
	// ScatterAllowed: messages and the results of all signaled READs and atomics, whatever is in the environment
	// (MLX5DV_QP_CREATE_ALLOW_SCATTER_TO_CQE).
	ScatterAllowed
)

// optionsOf returns the options of a new QP.
func optionsOf(cfg *uverbs.QPConfig) (o QPOptions, err error) {
	if p, ok := cfg.Options.(*QPOptions); !ok {
		return o, provider.UnknownOptions(cfg.Options)
	} else if p != nil {
		o = *p
	}
	if o.ScatterToCQE > ScatterAllowed {
		return o, invalid("create QP",
			"Options.ScatterToCQE: value %d is unknown: use ScatterDefault, ScatterDisabled or ScatterAllowed", o.ScatterToCQE)
	}
	return o, nil
}
