package mlx5

import (
	"github.com/goverbs/goverbs/internal/driver"
	"github.com/goverbs/goverbs/internal/ioctl"
	"github.com/goverbs/goverbs/internal/uapi"
	"github.com/goverbs/goverbs/uverbs"
)

// A DeviceAttr has the limits of options that only mlx5 devices have: struct mlx5dv_context of mlx5dv_query_device(3).
type DeviceAttr struct {
	OutOfOrder OutOfOrderLimits
	// LAGPorts is the number of ports that can be aggregated, or 0: see [QueryLAGPort].
	LAGPorts int
	Rates    RateLimits
	// DCIStreams has the limits of [uverbs.QPConfig.DCIStreams]. They are 0 if the device or the kernel has no streams.
	DCIStreams uverbs.DCIStreams
}

// OutOfOrderLimits has the maximum number of receives of QPs with [QPOptions.OutOfOrder], by their type: of
// [uverbs.QPConfig.MaxRecvWR] for RC, UD and UC, and of the SRQ for XRC and DCTs. 0 means that QPs of this type cannot
// have the option: struct mlx5dv_ooo_recv_wrs_caps.
type OutOfOrderLimits struct {
	RC, XRC, DCT, UD, UC int
}

// QueryDevice returns the limits of options that only mlx5 devices have. It returns an error that matches
// [uverbs.ErrNotSupported] if the device is not an mlx5 device, [uverbs.ErrInvalid] if the context is nil, and
// [uverbs.ErrClosed] after its Close.
func QueryDevice(ctx *uverbs.Context) (*DeviceAttr, error) {
	const op = "query device"
	a := new(DeviceAttr)
	err := withContext(ctx, op, func(c *deviceContext) error {
		r, err := c.queryDriver()
		if err != nil {
			return err
		}
		if s := r.DciStreamsCaps; s.MaxLogNumConcurent > 0 {
			a.DCIStreams = uverbs.DCIStreams{Concurrent: 1 << s.MaxLogNumConcurent, Errored: 1 << s.MaxLogNumErrored}
		}
		general, err := c.capsOrNone(op)
		if err != nil {
			return err
		}
		a.OutOfOrder, a.LAGPorts, a.Rates = c.outOfOrder(r, general), lagPortsOf(general), rateLimits(r)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return a, nil
}

// The byte of the general capabilities that has those of out-of-order QPs, dp_ordering_ooo_all_*, and its bits.
const (
	orderCapByte = 0x10 + 0x66
	orderCapUD   = 1 << 7
	orderCapUC   = 1 << 6
	orderCapXRC  = 1 << 5
	orderCapDC   = 1 << 4
	orderCapRC   = 1 << 3
)

// outOfOrder returns the limits of out-of-order QPs, as libmlx5 computes them. The kernel reports whether it has the
// option, and the device, in its general capabilities, the types of QPs that may have it.
func (c *deviceContext) outOfOrder(resp *uapi.Mlx5IbQueryDeviceResp, general []byte) (l OutOfOrderLimits) {
	if resp.Flags&uapi.MLX5_IB_QUERY_DEV_RESP_FLAGS_OOO_DP == 0 {
		return l
	}
	has, most := general[orderCapByte], c.limits.recvWR
	for _, x := range []struct {
		bit   byte
		limit *int
		ring  bool // twice as many slots as receives
	}{{orderCapRC, &l.RC, true}, {orderCapUC, &l.UC, true}, {orderCapUD, &l.UD, true}, {orderCapXRC, &l.XRC, false},
		{orderCapDC, &l.DCT, false}} {
		if has&x.bit == 0 {
			continue
		}
		if *x.limit = most; x.ring && most > 1 {
			*x.limit = most / 2
		}
	}
	return l
}

// queryDriver returns the driver's part of QUERY_DEVICE.
func (c *deviceContext) queryDriver() (*uapi.Mlx5IbQueryDeviceResp, error) {
	cmd := ioctl.Get()
	defer cmd.Put()
	ioctl.WriteEx[uapi.IbUverbsExQueryDeviceResp](cmd, uapi.IB_USER_VERBS_EX_CMD_QUERY_DEVICE,
		&uapi.IbUverbsExQueryDevice{})
	out := cmd.UHW(nil, c.DescribeLen())
	if err := c.dev.Do(cmd); err != nil {
		return nil, err
	}
	return driverReply(out), nil
}

// driverReply returns a copy of the driver's part of the reply of QUERY_DEVICE.
func driverReply(out []byte) *uapi.Mlx5IbQueryDeviceResp {
	resp := new(uapi.Mlx5IbQueryDeviceResp)
	copy(ioctl.BytesOf(resp), out)
	return resp
}

// DescribeLen implements driver.Describer.
func (c *deviceContext) DescribeLen() int { return ioctl.SizeOf[uapi.Mlx5IbQueryDeviceResp]() }

// Describe implements driver.Describer.
func (c *deviceContext) Describe(out []byte) driver.Description {
	r := driverReply(out)
	return driver.Description{
		MaxTSO: r.TsoCaps.MaxTso, TSOQPTypes: r.TsoCaps.SupportedQpts,
		HashFields: r.RssCaps.RxHashFieldsMask, HashFunctions: r.RssCaps.RxHashFunction,
		MinRate: r.PacketPacingCaps.QpRateLimitMin, MaxRate: r.PacketPacingCaps.QpRateLimitMax,
		RateQPTypes: r.PacketPacingCaps.SupportedQpts,
	}
}

// checkOutOfOrder checks that the device has out-of-order QPs of the type, with as many receives.
func (c *deviceContext) checkOutOfOrder(cfg *uverbs.QPConfig) error {
	const op = "create QP"
	resp, err := c.queryDriver()
	if err != nil {
		return err
	}
	general, err := c.capsOrNone(op)
	if err != nil {
		return err
	}
	l, limit := c.outOfOrder(resp, general), 0
	switch cfg.Type {
	case uverbs.RC:
		limit = l.RC
	case uverbs.UC:
		limit = l.UC
	case uverbs.UD:
		limit = l.UD
	case uverbs.XRCSend, uverbs.XRCRecv:
		limit = l.XRC
	case uverbs.DCI, uverbs.DCT:
		limit = l.DCT
	}
	switch {
	case limit == 0:
		return notSupported(op, "Options.OutOfOrder: the device, its firmware or the kernel has no out-of-order QPs of "+
			"type "+cfg.Type.String()+": see mlx5.QueryDevice")
	case cfg.SRQ == nil && cfg.MaxRecvWR > limit:
		return tooLarge(op, "MaxRecvWR of an out-of-order QP", cfg.MaxRecvWR, limit)
	}
	return nil
}

// modifyInput returns the driver's input of MODIFY_QP, and the length of its reply. The kernel wants the option in the
// transition to INIT. libmlx5 uses the extended form of the command for all transitions of such a QP.
func (q *qp) modifyInput(toInit bool) (in []byte, replyLen int) {
	req := &uapi.Mlx5IbModifyQp{EceOptions: q.ece.requested}
	if q.outOfOrder && toInit {
		req.CompMask = uapi.MLX5_IB_MODIFY_QP_OOO_DP
	}
	return ioctl.BytesOf(req), ioctl.SizeOf[uapi.Mlx5IbModifyQpResp]()
}

// An xrcTarget implements driver.QP for an XRCRecv QP that has options. It has no queues.
type xrcTarget struct{ qp }

// Retire implements driver.QP.
func (*xrcTarget) Retire(bool) error { return nil }

// Reset implements driver.QP.
func (*xrcTarget) Reset() error { return nil }
