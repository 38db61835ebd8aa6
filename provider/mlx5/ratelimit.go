package mlx5

import (
	"errors"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/driver"
	"github.com/goverbs/goverbs/internal/ioctl"
	"github.com/goverbs/goverbs/internal/uapi"
	"github.com/goverbs/goverbs/uverbs"
)

// A RateLimit limits the rate at which a QP of type RawPacket sends: struct ibv_qp_rate_limit_attr.
type RateLimit struct {
	Rate       uint32 // kilobits per second; 0 for no limit
	MaxBurst   uint32 // bytes that may be sent at once after a pause; 0 leaves it to the device
	PacketSize uint16 // bytes of a typical packet; 0 leaves it to the device
}

// RateLimits has the rates of [ModifyRateLimit]: struct ibv_packet_pacing_caps. If Max is 0, the device has none.
type RateLimits struct {
	Min, Max uint32 // kilobits per second
	Burst    bool   // RateLimit.MaxBurst and PacketSize may be set
}

const opModifyRate = "change the rate limit"

// ModifyRateLimit limits the rate at which a QP of type RawPacket sends: ibv_modify_qp_rate_limit(3). The QP is in
// state RTS, and loses the limit when it leaves it. [uverbs.QP.Modify] sets a rate without the rest of a RateLimit.
//
// ModifyRateLimit returns an error that matches [uverbs.ErrNotSupported] if the device, its link layer or the kernel
// lacks this, [unix.ENOSPC] if all rates of the device are in use, [uverbs.ErrInvalid] if the QP is nil, of another
// type or in another state, or if the device does not have the rate: see [QueryDevice], and [uverbs.ErrClosed] after
// its Close.
func ModifyRateLimit(qp *uverbs.QP, l RateLimit) error {
	return withQP(qp, opModifyRate, func(c *deviceContext, r driver.QPRef) error {
		switch t, s := uverbs.QPType(r.Type), uverbs.QPState(r.State); {
		case t != uverbs.RawPacket:
			return invalid(opModifyRate, "the QP is of type %v: only RawPacket has a rate limit", t)
		case s != uverbs.StateRTS:
			return invalid(opModifyRate, "the QP is in state %v: the rate can be limited in state RTS", s)
		}
		resp, err := c.queryDriver()
		if err != nil {
			return err
		}
		limits := rateLimits(resp)
		if err := limits.check(l); err != nil {
			return err
		}
		return c.modifyRate(r.Handle, l)
	})
}

// check checks that the device has the rate.
func (r *RateLimits) check(l RateLimit) error {
	extra := l.MaxBurst != 0 || l.PacketSize != 0
	switch {
	case r.Max == 0:
		return notSupported(opModifyRate, "the device has no packet pacing")
	case l.Rate != 0 && (l.Rate < r.Min || l.Rate > r.Max):
		return invalid(opModifyRate, "Rate is %d: the device has %d to %d kb/s", l.Rate, r.Min, r.Max)
	case extra && l.Rate == 0:
		return invalid(opModifyRate, "MaxBurst and PacketSize need a Rate")
	case extra && !r.Burst:
		return invalid(opModifyRate, "the device has neither MaxBurst nor PacketSize")
	}
	return nil
}

func (c *deviceContext) modifyRate(handle uint32, l RateLimit) error {
	cmd := ioctl.Get()
	defer cmd.Put()
	ioctl.WriteEx[uapi.IbUverbsExModifyQpResp](cmd, uapi.IB_USER_VERBS_EX_CMD_MODIFY_QP, &uapi.IbUverbsExModifyQp{
		Base: uapi.IbUverbsModifyQp{QpHandle: handle, AttrMask: uint32(uverbs.MaskRateLimit)}, RateLimit: l.Rate})
	req := &uapi.Mlx5IbModifyQp{BurstInfo: uapi.Mlx5IbBurstInfo{MaxBurstSz: l.MaxBurst, TypicalPktSz: l.PacketSize}}
	cmd.UHW(ioctl.BytesOf(req), ioctl.SizeOf[uapi.Mlx5IbModifyQpResp]())
	err := c.dev.Do(cmd)
	if errors.Is(err, unix.ENOSPC) {
		return kernelError(opModifyRate, "", err, "all rates of the device are in use")
	}
	return err
}

// rateLimits returns the rates that the kernel reports.
func rateLimits(resp *uapi.Mlx5IbQueryDeviceResp) RateLimits {
	p := &resp.PacketPacingCaps
	if p.SupportedQpts>>uapi.IB_UVERBS_QPT_RAW_PACKET&1 == 0 {
		return RateLimits{}
	}
	return RateLimits{Min: p.QpRateLimitMin, Max: p.QpRateLimitMax,
		Burst: p.CapFlags&uapi.MLX5_IB_PP_SUPPORT_BURST != 0}
}
