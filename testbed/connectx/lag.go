package connectx

import (
	"github.com/goverbs/goverbs/internal/sim/connectx/engine"
	"github.com/goverbs/goverbs/internal/sim/connectx/prm"
)

// Link aggregation: to the drivers, the device is a function of an adapter whose two ports another function has
// aggregated. Queue pairs and TISs have a port each, which the driver assigns in turn and programs change. Here, both
// ports are the same: frames do not depend on it.

// lagCommands are the commands of link aggregation.
var lagCommands = []command{
	{0x842, "QUERY_LAG", prm.QueryLAGIn, prm.QueryLAGOut, running, (*Device).queryLAG},
}

const (
	lagPorts  = 2
	lagActive = 1 // lag_state
	lagDCTs   = 1 // lag_dct: DCTs receive through the ports of the LAG
)

// offeredLAG are capabilities of link aggregation. lag_tx_port_affinity permits ports of queue pairs, and the last two
// permit changes of the port later than in RST2INIT_QP.
var offeredLAG = []Capability{
	{CapGeneral, prm.HCACapNumLAGPorts, lagPorts},
	{CapGeneral, prm.HCACapLAGTXPortAffinity, 1},
	{CapGeneral, prm.HCACapInit2LAGTXPortAffinity, 1},
	{CapGeneral, prm.HCACapRTS2RTSLAGTXPortAffinity, 1},
	{CapGeneral, prm.HCACapLAGDCT, lagDCTs},
}

// inLAG reports whether the device is part of a LAG.
func (d *Device) inLAG() bool {
	return d.caps.general(prm.HCACapNumLAGPorts) > 1 && d.caps.general(prm.HCACapLAGTXPortAffinity) != 0
}

// queryLAG returns the ports that are used for each port. All are up. Outside of a LAG, its state is 0: programs of
// DevX query it without looking at capabilities.
func (d *Device) queryLAG(in, out []byte) error {
	if !d.inLAG() {
		return nil
	}
	c := prm.QueryLAGOutLAGC.Bytes(out)
	prm.LAGCState.Set(c, lagActive)
	prm.LAGCTXRemapAffinity1.Set(c, 1)
	prm.LAGCTXRemapAffinity2.Set(c, 2)
	return nil
}

// lagPort decodes the port of the LAG in a context. 0 means any.
func (d *Device) lagPort(f prm.Field, context []byte) (uint8, error) {
	port := f.Get(context)
	if port != 0 && (!d.inLAG() || port > d.caps.general(prm.HCACapNumLAGPorts)) {
		return 0, refuse(statusBadParam, reasonCapability)
	}
	return uint8(port), nil
}

// decodeLAGPort decodes the port of the LAG in the context of a transition that changes it: RST2INIT_QP does so always,
// others if the mask has it.
func (d *Device) decodeLAGPort(t engine.Transition, mask engine.Param, in []byte, a *engine.QPAttr) (err error) {
	if t != engine.RST2INIT {
		may := prm.HCACapInit2LAGTXPortAffinity
		if t == engine.RTS2RTS {
			may = prm.HCACapRTS2RTSLAGTXPortAffinity
		}
		switch {
		case mask&engine.ParamLAGPort == 0:
			return nil
		case d.caps.general(may) == 0:
			return refuse(statusBadParam, reasonCapability)
		}
	}
	a.LAGPort, err = d.lagPort(prm.QPCLAGTXPortAffinity, prm.ModifyQPInQPC.Bytes(in))
	return err
}
