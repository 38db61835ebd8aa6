package fakemlx5

import (
	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/ioctl"
	"github.com/goverbs/goverbs/internal/sim/call"
	"github.com/goverbs/goverbs/internal/sim/connectx/engine"
	"github.com/goverbs/goverbs/internal/sim/connectx/prm"
	"github.com/goverbs/goverbs/internal/uapi"
)

// Link aggregation: an Ethernet device has two aggregated ports, which are one. mlx5_ib assigns them to QPs in turn. A
// raw packet QP has the port of its TIS.

const (
	queryQPOpcode   = 0x50b
	queryLAG        = 0x842
	modifyTISOpcode = 0x913
	queryTISOpcode  = 0x915
	lagPorts        = 2
)

// hasLAG reports whether the device's ports are aggregated.
func (k *Kernel) hasLAG() bool { return !k.adapter.cfg.InfiniBand && !k.NoLAG }

// nextLAGPort returns the port for a new QP: get_tx_affinity_rr of mlx5_ib.
func (k *Kernel) nextLAGPort() uint8 {
	if !k.hasLAG() {
		return 0
	}
	k.lagPort = k.lagPort%lagPorts + 1
	return k.lagPort
}

// lagCaps sets the capabilities of link aggregation.
func (k *Kernel) lagCaps(caps []byte) {
	if k.hasLAG() {
		prm.HCACapNumLAGPorts.Set(caps, lagPorts)
		prm.HCACapLAGTXPortAffinity.Set(caps, 1)
		prm.HCACapRTS2RTSLAGTXPortAffinity.Set(caps, 1)
	}
}

// queryLAG returns the ports that are used for each port: itself, unless it is down.
func (k *Kernel) queryLAG(out []byte) error {
	if !k.hasLAG() {
		return firmwareRefuses(out)
	}
	used := [...]uint64{1: 1, 2: 2}
	if down := k.LAGPortDown; down != 0 {
		used[down] = lagPorts + 1 - uint64(down)
	}
	c := prm.QueryLAGOutLAGC.Bytes(out)
	prm.LAGCState.Set(c, 1)
	prm.LAGCTXRemapAffinity1.Set(c, used[1])
	prm.LAGCTXRemapAffinity2.Set(c, used[2])
	return nil
}

// devxQuery executes a command that queries a QP, or the TIS of a raw packet QP.
func (k *Kernel) devxQuery(c ioctl.Call) error {
	in, out := commandOf(c, uapi.MLX5_IB_ATTR_DEVX_OBJ_QUERY_CMD_IN, uapi.MLX5_IB_ATTR_DEVX_OBJ_QUERY_CMD_OUT,
		prm.QueryQPIn.Size, prm.QueryTISOut.Size)
	if k.NoDevX {
		return unix.EOPNOTSUPP
	}
	if in == nil {
		return unix.EINVAL
	}
	h := call.Handle(c, uapi.MLX5_IB_ATTR_DEVX_OBJ_QUERY_HANDLE)
	q, raw := k.QPs[h], k.raw.qps[h]
	switch opcode := prm.CmdOpcode.Get(in); {
	case opcode == queryQPOpcode && q != nil && uint32(prm.QueryQPInQPN.Get(in)) == q.Number:
		a, err := k.adapter.HCA.QueryQP(q.Number)
		prm.QPCLAGTXPortAffinity.Set(prm.QueryQPOutQPC.Bytes(out), uint64(a.LAGPort))
		return remoteIO(out, err)
	case opcode == queryTISOpcode && raw.hasTIS(uint32(prm.QueryTISInTISN.Get(in))):
		prm.TISCLAGTXPortAffinity.Set(prm.QueryTISOutTISC.Bytes(out), uint64(raw.tis.LAGPort))
		return nil
	}
	return unix.EINVAL
}

// hasTIS reports whether q is a raw packet QP with the TIS of a number.
func (q *rawQP) hasTIS(number uint32) bool { return q != nil && q.tis != nil && q.tis.Number == number }

// modifyTIS changes the LAG port of a raw packet QP.
func (k *Kernel) modifyTIS(q *rawQP, in, out []byte) error {
	if !q.hasTIS(uint32(prm.ModifyTISInTISN.Get(in))) {
		return unix.EINVAL
	}
	port := prm.TISCLAGTXPortAffinity.Get(prm.ModifyTISInTISC.Bytes(in))
	if !prm.ModifyTISInBitmaskLAGTXPortAffinity.Is(in) || !k.hasLAG() || port > lagPorts {
		return firmwareRefuses(out)
	}
	q.tis.LAGPort = uint8(port)
	return nil
}

// modifyLAGPort changes the LAG port of a QP.
func (k *Kernel) modifyLAGPort(q *QP, in, out []byte) error {
	port := prm.QPCLAGTXPortAffinity.Get(prm.ModifyQPInQPC.Bytes(in))
	if !k.hasLAG() || port > lagPorts {
		return firmwareRefuses(out)
	}
	q.attr.LAGPort = uint8(port)
	return remoteIO(out, k.adapter.HCA.ModifyQP(q.Number, engine.RTS2RTS, engine.ParamLAGPort, q.attr))
}
