package fakemlx5

import (
	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/ioctl"
	"github.com/goverbs/goverbs/internal/sim/call"
	"github.com/goverbs/goverbs/internal/sim/connectx/engine"
	"github.com/goverbs/goverbs/internal/sim/connectx/prm"
	"github.com/goverbs/goverbs/internal/uapi"
)

// The device has the commands of DevX that the provider itself issues: QUERY_HCA_CAP for the current general
// capabilities, RTS2RTS_QP for what MODIFY_QP of the verbs lacks, those of LAG ports, and CREATE_GENERAL_OBJECT for
// reserved QP numbers. Channels of events exist, without events. The rest of package devx needs a real device.

// Opcodes of these commands, and the modes of QUERY_HCA_CAP.
const (
	queryHCACap     = 0x100
	currentGeneral  = 1
	currentGeneral2 = 0x20<<1 | 1
	rts2RTS         = 0x505
	createGeneral   = 0xa00
)

// Reserved QP numbers: the first, and how many a block has.
const (
	firstReserved = 1 << 22
	logReserved   = 6
)

// resetStream is the parameter of RTS2RTS_QP's extension that resets a stream of a DCI.
const resetStream = 1 << 0

// commandOf returns the input and the output of a command of DevX, or nil if they are shorter than the command's.
func commandOf(c ioctl.Call, inID, outID uint16, inSize, outSize int) (in, out []byte) {
	i, o := call.Attr(c, inID), call.Attr(c, outID)
	if i == nil || o == nil || int(i.Len) < inSize || int(o.Len) < outSize {
		return nil, nil
	}
	return c.Memory(i.Data, int(i.Len)), c.Memory(o.Data, int(o.Len))
}

// devxOther executes a command that refers to no object.
func (k *Kernel) devxOther(c ioctl.Call) error {
	in, out := commandOf(c, uapi.MLX5_IB_ATTR_DEVX_OTHER_CMD_IN, uapi.MLX5_IB_ATTR_DEVX_OTHER_CMD_OUT,
		prm.QueryHCACapIn.Size, prm.QueryLAGOut.Size)
	switch {
	case k.NoDevX:
		return unix.EOPNOTSUPP
	case in == nil:
		return unix.EINVAL
	case prm.CmdOpcode.Get(in) == queryLAG:
		return k.queryLAG(out)
	case prm.CmdOpcode.Get(in) != queryHCACap:
		return unix.EOPNOTSUPP
	case len(out) < prm.QueryHCACapOut.Size:
		return unix.EINVAL
	}
	caps := prm.QueryHCACapOutCapability.Bytes(out)
	switch prm.CmdOpMod.Get(in) {
	case currentGeneral:
		k.generalCaps(caps)
	case currentGeneral2:
		prm.HCACap2LogReservedQPNGranularity.Set(caps, logReserved)
	default:
		return unix.EOPNOTSUPP
	}
	return nil
}

// generalCaps sets the general capabilities.
func (k *Kernel) generalCaps(caps []byte) {
	prm.HCACapQPCExtension.Set(caps, 1)
	k.lagCaps(caps)
	if !k.adapter.cfg.InfiniBand {
		prm.HCACapRTS2RTSQPUDPSport.Set(caps, 1)
	}
	if !k.NoOutOfOrder {
		for _, f := range []prm.Field{prm.HCACapDPOrderingOOOAllRC, prm.HCACapDPOrderingOOOAllXRC,
			prm.HCACapDPOrderingOOOAllDC} {
			f.Set(caps, 1)
		}
	}
	if !k.NoReservedQPNs {
		prm.HCACapGeneralObjTypes.Set(caps, 1<<prm.ObjectReservedQPN)
	}
}

// devxEvents creates a channel of events.
func (k *Kernel) devxEvents(c ioctl.Call) error {
	fd, err := k.Kernel.AllocEvents()
	if err != nil {
		return err
	}
	call.Attr(c, uapi.MLX5_IB_ATTR_DEVX_ASYNC_EVENT_FD_ALLOC_HANDLE).Data = uint64(fd)
	return nil
}

// devxCreate creates a block of reserved QP numbers.
func (k *Kernel) devxCreate(c ioctl.Call) error {
	in, out := commandOf(c, uapi.MLX5_IB_ATTR_DEVX_OBJ_CREATE_CMD_IN, uapi.MLX5_IB_ATTR_DEVX_OBJ_CREATE_CMD_OUT,
		prm.GeneralObjectIn.Size, prm.GeneralObjectOut.Size)
	switch {
	case k.NoDevX:
		return unix.EOPNOTSUPP
	case in == nil || prm.CmdOpcode.Get(in) != createGeneral:
		return unix.EINVAL
	case prm.GeneralObjectInObjType.Get(in) != prm.ObjectReservedQPN ||
		prm.GeneralObjectInLogObjRange.Get(in) != logReserved:
		return firmwareRefuses(out)
	}
	k.adapter.reserved++
	h := k.adapter.reserved
	k.objs[h] = true
	call.Attr(c, uapi.MLX5_IB_ATTR_DEVX_OBJ_CREATE_HANDLE).Data = uint64(h)
	prm.GeneralObjectOutObjID.Set(out, uint64(firstReserved+h<<logReserved))
	return nil
}

// devxDestroy destroys a block of reserved QP numbers.
func (k *Kernel) devxDestroy(c ioctl.Call) error {
	h := call.Handle(c, uapi.MLX5_IB_ATTR_DEVX_OBJ_DESTROY_HANDLE)
	if !k.objs[h] {
		return unix.ENOENT
	}
	delete(k.objs, h)
	return nil
}

// devxModify executes a command that changes a QP.
func (k *Kernel) devxModify(c ioctl.Call) error {
	in, out := commandOf(c, uapi.MLX5_IB_ATTR_DEVX_OBJ_MODIFY_CMD_IN, uapi.MLX5_IB_ATTR_DEVX_OBJ_MODIFY_CMD_OUT,
		prm.ModifyTISIn.Size, prm.ModifyQPOut.Size)
	h := call.Handle(c, uapi.MLX5_IB_ATTR_DEVX_OBJ_MODIFY_HANDLE)
	q := k.QPs[h]
	switch {
	case k.NoDevX:
		return unix.EOPNOTSUPP
	case in != nil && prm.CmdOpcode.Get(in) == modifyTISOpcode:
		return k.modifyTIS(k.raw.qps[h], in, out)
	case len(in) < prm.ModifyQPIn.Size || q == nil || prm.CmdOpcode.Get(in) != rts2RTS ||
		uint32(prm.ModifyQPInQPN.Get(in)) != q.Number:
		return unix.EINVAL
	case prm.ModifyQPInQPCExt.Is(in):
		return k.modifyExtension(q, in, out)
	case engine.Param(prm.ModifyQPInOptParamMask.Get(in)) == engine.ParamLAGPort:
		return k.modifyLAGPort(q, in, out)
	}
	if engine.Param(prm.ModifyQPInOptMask9532.Get(in))<<32 != engine.ParamUDPSport || k.adapter.cfg.InfiniBand {
		return firmwareRefuses(out)
	}
	q.attr.Primary.UDPSport = uint16(prm.ADSUDPSport.Get(prm.QPCPrimary.Bytes(prm.ModifyQPInQPC.Bytes(in))))
	return remoteIO(out, k.adapter.HCA.ModifyQP(q.Number, engine.RTS2RTS, engine.ParamUDPSport, q.attr))
}

// modifyExtension resets a stream of a DCI.
func (k *Kernel) modifyExtension(q *QP, in, out []byte) error {
	e := prm.ModifyQPInQPCDataExt.Rest(in)
	switch {
	case len(e) < prm.QPCExt.Size:
		return unix.EINVAL
	case prm.ModifyQPInOptMask9532.Get(in) != resetStream:
		return firmwareRefuses(out)
	}
	return remoteIO(out, k.adapter.HCA.ResetStream(q.Number, uint16(prm.QPCExtDCIStreamChannelID.Get(e))))
}

// remoteIO returns the error of a command of DevX if the firmware has refused it.
func remoteIO(out []byte, err error) error {
	if err != nil {
		return firmwareRefuses(out)
	}
	return nil
}

// firmwareRefuses returns the error of a command of DevX that the firmware has refused: mlx5_cmd_check returns the
// firmware's status to the program and this error.
func firmwareRefuses(out []byte) error {
	const badParameter = 0x3
	prm.CmdStatus.Set(out, badParameter)
	return unix.EREMOTEIO
}

// DevXObjects returns how many objects of DevX the file has.
func (k *Kernel) DevXObjects() int { return len(k.objs) }
