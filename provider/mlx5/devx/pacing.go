package devx

import (
	"encoding/binary"
	"errors"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/driver"
	"github.com/goverbs/goverbs/internal/ioctl"
	"github.com/goverbs/goverbs/internal/uapi"
	"github.com/goverbs/goverbs/uverbs"
)

// A PacingConfig describes an entry of the device's table of rates.
type PacingConfig struct {
	Rate       uint32 // kilobits per second
	Burst      uint32 // bytes that may be sent at once after a pause; 0 leaves it to the device
	PacketSize uint16 // bytes of a typical packet; 0 leaves it to the device
	// Dedicated is set for an entry that no other object and no other process uses. Otherwise, equal entries
	// are one.
	Dedicated bool
}

// A Pacing is an entry of the device's table of rates: struct mlx5dv_pp.
type Pacing struct {
	object
	index uint16
}

// The context of a rate, as SET_PP_RATE_LIMIT has it.
const (
	rateSize       = 0x30
	rateBurst      = 0x4
	ratePacketSize = 0xa
)

// AllocPacing allocates an entry, to which send queues of raw packets refer by its index:
// mlx5dv_pp_alloc(3). It returns [uverbs.ErrNotSupported] if the device lacks packet pacing,
// [uverbs.ErrInvalid] if the context has no DevX, or the device does not have the rate or such a
// burst, an error that matches [unix.ENOSPC] if the table is full, and [uverbs.ErrClosed] after
// Close of ctx.
func AllocPacing(ctx *uverbs.Context, cfg PacingConfig) (*Pacing, error) {
	const op = "allocate an entry of the table of rates"
	p := &Pacing{}
	err := p.create(ctx, op, driver.ExtensionConfig{Kind: "packet pacing",
		Create: func(driver.Extension) (uint32, error) { return p.alloc(op, &cfg) },
		Destroy: func() error {
			return p.dev.Destroy(uapi.MLX5_IB_OBJECT_PP, uapi.MLX5_IB_METHOD_PP_OBJ_DESTROY,
				uapi.MLX5_IB_ATTR_PP_OBJ_DESTROY_HANDLE, p.handle)
		}})
	if err != nil {
		return nil, err
	}
	return p, nil
}

func (p *Pacing) alloc(op string, cfg *PacingConfig) (uint32, error) {
	if cfg.Rate == 0 {
		return 0, invalid(op, "Rate is 0: an entry has a rate")
	}
	b := make([]byte, rateSize)
	binary.BigEndian.PutUint32(b, cfg.Rate)
	binary.BigEndian.PutUint32(b[rateBurst:], cfg.Burst)
	binary.BigEndian.PutUint16(b[ratePacketSize:], cfg.PacketSize)
	var flags uint32
	if cfg.Dedicated {
		flags = uapi.MLX5_IB_UAPI_PP_ALLOC_FLAGS_DEDICATED_INDEX
	}
	c := ioctl.Get()
	defer c.Put()
	c.Start(uapi.MLX5_IB_OBJECT_PP, uapi.MLX5_IB_METHOD_PP_OBJ_ALLOC)
	c.NewHandle(uapi.MLX5_IB_ATTR_PP_OBJ_ALLOC_HANDLE)
	c.In(uapi.MLX5_IB_ATTR_PP_OBJ_ALLOC_CTX, b)
	c.Uint32(uapi.MLX5_IB_ATTR_PP_OBJ_ALLOC_FLAGS, flags)
	index := ioctl.OutOf[uint16](c, uapi.MLX5_IB_ATTR_PP_OBJ_ALLOC_INDEX)
	switch err := p.dev.Do(c); {
	case errors.Is(err, unix.EINVAL):
		return 0, invalid(op, "the device does not have a rate of %d kb/s with burst %d and packet size %d, "+
			"or the context has no DevX", cfg.Rate, cfg.Burst, cfg.PacketSize)
	case err != nil:
		return 0, err
	}
	p.index, p.handle = *index, c.Made(uapi.MLX5_IB_ATTR_PP_OBJ_ALLOC_HANDLE)
	return p.handle, nil
}

// Index returns the number of the entry, packet_pacing_rate_limit_index in the context of a send queue.
func (p *Pacing) Index() uint16 { return p.index }

// Close frees the entry: mlx5dv_pp_free(3). Close is idempotent.
func (p *Pacing) Close() error { return p.life.Close() }
