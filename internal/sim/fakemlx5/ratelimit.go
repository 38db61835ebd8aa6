package fakemlx5

import (
	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/sim/call"
	"github.com/goverbs/goverbs/internal/sim/connectx/engine"
	"github.com/goverbs/goverbs/internal/uapi"
	"github.com/goverbs/goverbs/uverbs"
)

// Rates of raw packet QPs, which come with the extended form of MODIFY_QP. Each QP has an entry of the device's table
// of rates.

// pacingCaps are the rates that mlx5_ib reports in QUERY_DEVICE.
func (k *Kernel) pacingCaps(p *uapi.Mlx5PacketPacingCaps) {
	if k.RateMax > 0 {
		p.QpRateLimitMin, p.QpRateLimitMax = 1, k.RateMax
		p.SupportedQpts, p.CapFlags = 1<<uapi.IB_UVERBS_QPT_RAW_PACKET, uapi.MLX5_IB_PP_SUPPORT_BURST
	}
}

// limitRate sets the rate of a raw packet QP that the command requests: modify_raw_packet_qp_sq of mlx5_ib. The QP
// loses it when it leaves RTS.
func (k *Kernel) limitRate(q *rawQP, to uverbs.QPState) error {
	const modifyEx = uapi.IB_USER_VERBS_EX_CMD_MODIFY_QP | uapi.IB_USER_VERBS_CMD_FLAG_EXTENDED
	if q.sq == nil {
		return nil
	}
	var r engine.Rate
	if call.Num(k.call, uapi.UVERBS_ATTR_WRITE_CMD) == modifyEx {
		core := call.In[uapi.IbUverbsExModifyQp](k.call, uapi.UVERBS_ATTR_CORE_IN)
		burst := call.In[uapi.Mlx5IbModifyQp](k.call, uapi.UVERBS_ATTR_UHW_IN).BurstInfo
		if uverbs.QPMask(core.Base.AttrMask)&uverbs.MaskRateLimit == 0 {
			return nil
		}
		r = engine.Rate{Limit: core.RateLimit, Burst: burst.MaxBurstSz}
		if r.Limit == 0 && (r.Burst != 0 || burst.TypicalPktSz != 0) {
			return unix.EINVAL
		}
	} else if to == uverbs.StateRTS {
		return nil
	}
	hca := k.adapter.HCA
	switch {
	case r.Limit == 0 && q.rate == 0:
	case r.Limit == 0:
		k.check(hca.SetSQRate(q.sq.Number, 0))
		k.check(hca.SetRate(q.rate, r))
		q.rate = 0
	default:
		if q.rate == 0 {
			if q.rate = k.adapter.freeRate(); q.rate == 0 {
				return unix.ENOSPC
			}
		}
		k.check(hca.SetRate(q.rate, r))
		k.check(hca.SetSQRate(q.sq.Number, q.rate))
	}
	return nil
}

// freeRate returns an entry of the table of rates that no QP has, or 0.
func (a *Adapter) freeRate() uint16 {
	const entries = 127
	for i := range uint16(entries) {
		if a.HCA.Rate(i+1).Limit == 0 {
			return i + 1
		}
	}
	return 0
}
