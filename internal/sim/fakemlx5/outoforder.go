package fakemlx5

import (
	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/ioctl"
	"github.com/goverbs/goverbs/internal/sim/call"
	"github.com/goverbs/goverbs/internal/uapi"
	"github.com/goverbs/goverbs/uverbs/ether"
)

// Out-of-order QPs: mlx5_ib reports in QUERY_DEVICE whether it has them, and the device's general capabilities, which
// programs read with a command of DevX, name the services. The flag of a QP comes with the transition to INIT.

// queryDevice completes the reply to QUERY_DEVICE with the driver's part.
func (k *Kernel) queryDevice(c ioctl.Call) {
	r := uapi.Mlx5IbQueryDeviceResp{ResponseLength: uint32(ioctl.SizeOf[uapi.Mlx5IbQueryDeviceResp]())}
	if !k.NoOutOfOrder {
		r.Flags = uapi.MLX5_IB_QUERY_DEV_RESP_FLAGS_OOO_DP
	}
	k.pacingCaps(&r.PacketPacingCaps)
	if k.Raw {
		r.TsoCaps = uapi.Mlx5IbTsoCaps{MaxTso: maxTSO, SupportedQpts: k.TSOTypes}
		r.RssCaps = uapi.Mlx5IbRssCaps{RxHashFieldsMask: uint64(rssFields), RxHashFunction: uint8(ether.RSSToeplitz)}
	}
	r.DciStreamsCaps = uapi.Mlx5IbDciStreamsCaps{MaxLogNumConcurent: logStreams, MaxLogNumErrored: logErroredStreams}
	call.Reply(c, uapi.UVERBS_ATTR_UHW_OUT, &r)
}

// order reads the flag of MODIFY_QP that makes a QP out of order: mlx5_ib_modify_qp.
func (k *Kernel) order(outOfOrder *bool) error {
	const modifyEx = uapi.IB_USER_VERBS_EX_CMD_MODIFY_QP | uapi.IB_USER_VERBS_CMD_FLAG_EXTENDED
	if call.Num(k.call, uapi.UVERBS_ATTR_WRITE_CMD) != modifyEx {
		return nil
	}
	switch call.In[uapi.Mlx5IbModifyQp](k.call, uapi.UVERBS_ATTR_UHW_IN).CompMask {
	case 0:
	case uapi.MLX5_IB_MODIFY_QP_OOO_DP:
		if k.NoOutOfOrder {
			return unix.EOPNOTSUPP
		}
		*outOfOrder = true
	default:
		return unix.EOPNOTSUPP
	}
	return nil
}
