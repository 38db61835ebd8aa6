package fakemlx5

import (
	"encoding/binary"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/ioctl"
	"github.com/goverbs/goverbs/internal/uapi"
)

// Out-of-order QPs: mlx5_ib reports in QUERY_DEVICE whether it has them, and the device's general capabilities, which
// programs read with a command of DevX, name the services. The flag of a QP comes with the transition to INIT.

// Of the command QUERY_HCA_CAP: its opcode, the mode for the current general capabilities, and where the reply has the
// services with out-of-order QPs.
const (
	queryHCACap    = 0x100
	currentGeneral = 1
	orderServices  = 0x10 + 0x66
)

// outOfOrderServices are RC, XRC and DC: dp_ordering_ooo_all_*.
const outOfOrderServices = 1<<3 | 1<<4 | 1<<5

// queryDevice completes the reply to QUERY_DEVICE with the driver's part.
func (k *Kernel) queryDevice(c ioctl.Call) {
	r := uapi.Mlx5IbQueryDeviceResp{ResponseLength: uint32(ioctl.SizeOf[uapi.Mlx5IbQueryDeviceResp]())}
	if !k.NoOutOfOrder {
		r.Flags = uapi.MLX5_IB_QUERY_DEV_RESP_FLAGS_OOO_DP
	}
	reply(c, uapi.UVERBS_ATTR_UHW_OUT, &r)
}

// devxCommand executes QUERY_HCA_CAP for the general capabilities, of which only those of out-of-order QPs are set. The
// device has no other commands of DevX.
func (k *Kernel) devxCommand(c ioctl.Call) error {
	in, out := attr(c, uapi.MLX5_IB_ATTR_DEVX_OTHER_CMD_IN), attr(c, uapi.MLX5_IB_ATTR_DEVX_OTHER_CMD_OUT)
	if in == nil || out == nil || in.Len < 16 || out.Len <= orderServices {
		return unix.EINVAL
	}
	request := c.Memory(in.Data, int(in.Len))
	if binary.BigEndian.Uint16(request) != queryHCACap || binary.BigEndian.Uint16(request[6:]) != currentGeneral ||
		k.NoOutOfOrder {
		return unix.EOPNOTSUPP
	}
	c.Memory(out.Data, int(out.Len))[orderServices] = outOfOrderServices
	return nil
}

// order reads the flag of MODIFY_QP that makes a QP out of order: mlx5_ib_modify_qp.
func (k *Kernel) order(outOfOrder *bool) error {
	const modifyEx = uapi.IB_USER_VERBS_EX_CMD_MODIFY_QP | uapi.IB_USER_VERBS_CMD_FLAG_EXTENDED
	if Num(k.call, uapi.UVERBS_ATTR_WRITE_CMD) != modifyEx {
		return nil
	}
	switch Input[uapi.Mlx5IbModifyQp](k.call, uapi.UVERBS_ATTR_UHW_IN).CompMask {
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
