package uverbs

import "github.com/goverbs/goverbs/internal/driver"

// The interfaces of package driver for the types of this package. Package
// internal/provider instantiates them in the same way, for the providers.
type (
	provider         = driver.Provider[QPConfig, AHAttr, SendWR, RecvWR, SGE, WC]
	providerImporter = driver.Importer[QPConfig, AHAttr, SendWR, RecvWR, SGE, WC]
	providerContext  = driver.Context[QPConfig, AHAttr, SendWR, RecvWR, SGE, WC]
	providerCQ       = driver.CQ[WC]
	providerQP       = driver.QP[SendWR, RecvWR, SGE]
	providerQPEnv    = driver.QPEnv[SendWR, RecvWR]
	providerSRQ      = driver.SRQ[RecvWR]
	providerWQ       = driver.WQ[RecvWR]
	providerWQs      = driver.WQs[RecvWR]
)

// opOf is driver.OpOf. It repeats the expression, because a nested call would count
// towards the limit up to which the compiler inlines the methods of SendBatch.
func opOf(op Opcode, f SendFlags) driver.Op { return driver.Op(op) | driver.Op(f)<<8 }

// env returns what the provider's part of q uses of other objects.
func (q *QP) env() *providerQPEnv {
	e := &providerQPEnv{Bind: q.bind, MTU: q.maxDatagram, Checksums: q.checksums, DoorbellError: q.doorbellError}
	if s := q.cfg.SRQ; s != nil {
		e.SRQ = s.impl
	}
	if q.pd == nil { // of an XRCD
		return e
	}
	e.PD, e.Memory = q.pd.shared(), q.pd.memory()
	if q.pd.single() {
		e.TD = q.pd.td.impl
	}
	return e
}

// bind resolves the window and the region of an OpBindMW request.
func (q *QP) bind(wr *SendWR) (driver.Bind, error) { return q.resolveBind(wr.Bind) }

// maxDatagram queries the longest message that a UD QP can send now, in bytes. It
// returns [MaxMessage] if the query fails.
func (q *QP) maxDatagram() uint64 {
	a, err := q.ctx.QueryPort(int(q.port.Load()))
	if err != nil || a.ActiveMTU.Bytes() == 0 {
		return MaxMessage
	}
	return uint64(a.ActiveMTU.Bytes())
}

// checksums reports whether the device fills in checksums of raw packets.
func (q *QP) checksums() bool {
	a, err := q.ctx.limits()
	return err == nil && a.CapFlags&DeviceRawIPCsum != 0
}

// ahEnv returns what the provider's part of an AH depends on.
func (c *Context) ahEnv(attr *AHAttr) *driver.AHEnv {
	return &driver.AHEnv{
		Ethernet: func() (bool, error) {
			a, err := c.QueryPort(int(attr.Port))
			return err == nil && a.LinkLayer == LinkEthernet, err
		},
		RoCEv2: func() (bool, error) {
			g, err := c.unnamedGID(int(attr.Port), int(attr.SGIDIndex))
			return err == nil && g.Type == GIDTypeRoCEv2, err
		},
	}
}

func init() {
	driver.ErrNoAH, driver.ErrClosedAH, driver.ErrForeignAH = ErrNoAH, errClosedAH, ErrForeignAH
}
