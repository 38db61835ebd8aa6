package uverbs

import (
	"fmt"
	"slices"

	"github.com/goverbs/goverbs/internal/driver"
	"github.com/goverbs/goverbs/internal/ioctl"
	"github.com/goverbs/goverbs/internal/machine"
	"github.com/goverbs/goverbs/internal/uapi"
	"golang.org/x/sys/unix"
)

// QueryDevice returns the capabilities and limits of the device: ibv_query_device_ex(3). It
// returns [ErrClosed] after Close of the Context.
func (c *Context) QueryDevice() (*DeviceAttr, error) {
	a := new(DeviceAttr)
	err := c.queryDevice(func(r *uapi.IbUverbsExQueryDeviceResp, d driver.Description) {
		a.fillBase(&r.Base)
		a.fillExtended(r)
		a.fillDriver(d)
	})
	if err != nil {
		return nil, err
	}
	return a, nil
}

// queryDevice calls use with the reply of the kernel and the part of it that the driver adds, which
// is zero if it adds none.
func (c *Context) queryDevice(use func(*uapi.IbUverbsExQueryDeviceResp, driver.Description)) error {
	cmd := ioctl.Get()
	defer cmd.Put()
	resp := ioctl.WriteEx[uapi.IbUverbsExQueryDeviceResp](cmd, uapi.IB_USER_VERBS_EX_CMD_QUERY_DEVICE,
		&uapi.IbUverbsExQueryDevice{})
	var ofDriver []byte
	p, described := c.impl.(driver.Describer)
	if described {
		ofDriver = cmd.UHW(nil, p.DescribeLen())
	}
	if err := c.dev.Do(cmd); err != nil {
		return c.wrap("query device", c.name, err, "")
	}
	var d driver.Description
	if described {
		d = p.Describe(ofDriver)
	}
	use(resp, d)
	return nil
}

// queryEthernet returns the attributes of package ether.
func (c *Context) queryEthernet() (a driver.EthernetAttr, err error) {
	err = c.queryDevice(func(r *uapi.IbUverbsExQueryDeviceResp, d driver.Description) {
		a = driver.EthernetAttr{MaxTSO: d.MaxTSO, TSOQPTypes: d.TSOQPTypes, RSSQPTypes: r.RssCaps.SupportedQpts,
			MaxRWQTables: r.RssCaps.MaxRwqIndirectionTables, MaxRWQTableSize: r.RssCaps.MaxRwqIndirectionTableSize,
			HashFunctions: d.HashFunctions, HashFields: d.HashFields, MaxWQ: r.MaxWqTypeRq, RawPacketCaps: r.RawPacketCaps,
			MaxRawEthyQP: r.Base.MaxRawEthyQp}
	})
	return a, err
}

// limits returns the result of QueryDevice, cached: the attributes of a device do not change.
func (c *Context) limits() (*DeviceAttr, error) {
	c.attrMu.Lock()
	defer c.attrMu.Unlock()
	if c.attr == nil {
		a, err := c.QueryDevice()
		if err != nil {
			return nil, err
		}
		c.attr = a
	}
	return c.attr, nil
}

// QueryPort returns the state of a port: ibv_query_port(3). Ports are counted from 1. It
// returns [ErrInvalid] if the device has no such port.
func (c *Context) QueryPort(port int) (*PortAttr, error) {
	if err := c.checkPort("query port", port); err != nil {
		return nil, err
	}
	cmd := ioctl.Get()
	defer cmd.Put()
	cmd.Start(uapi.UVERBS_OBJECT_DEVICE, uapi.UVERBS_METHOD_QUERY_PORT)
	cmd.Uint64(uapi.UVERBS_ATTR_QUERY_PORT_PORT_NUM, uint64(port))
	r := ioctl.OutOf[uapi.IbUverbsQueryPortRespEx](cmd, uapi.UVERBS_ATTR_QUERY_PORT_RESP)
	if err := c.dev.Do(cmd); err != nil {
		return nil, c.wrap("query port", c.name, err, "")
	}
	l := &r.LegacyResp
	a := &PortAttr{
		State: PortState(l.State), MaxMTU: MTU(l.MaxMtu), ActiveMTU: MTU(l.ActiveMtu), GIDTableLen: int(l.GidTblLen),
		CapFlags: PortCapFlags(l.PortCapFlags), CapFlags2: PortCapFlags2(r.PortCapFlags2), MaxMsgSize: l.MaxMsgSz,
		BadPKeyCntr: l.BadPkeyCntr, QKeyViolCntr: l.QkeyViolCntr, PKeyTableLen: int(l.PkeyTblLen),
		LID: l.Lid, SMLID: l.SmLid, LMC: l.Lmc, MaxVLNum: l.MaxVlNum, SMSL: l.SmSl,
		SubnetTimeout: l.SubnetTimeout, InitTypeReply: l.InitTypeReply, ActiveWidth: l.ActiveWidth,
		ActiveSpeed: uint32(l.ActiveSpeed), PhysState: l.PhysState, LinkLayer: LinkLayer(l.LinkLayer),
		GRHRequired: l.Flags&uapi.IB_UVERBS_QPF_GRH_REQUIRED != 0,
	}
	if r.ActiveSpeedEx != 0 {
		a.ActiveSpeed = r.ActiveSpeedEx
	}
	return a, nil
}

// activePort returns the first active port.
func (c *Context) activePort() (int, error) {
	state := "it has no port"
	for port := 1; port <= c.device.Ports; port++ {
		a, err := c.QueryPort(port)
		if err != nil {
			return 0, err
		}
		if a.State == PortActive {
			return port, nil
		}
		state = "port " + sitoa(port) + " is " + a.State.String()
	}
	return 0, &Error{Op: "find an active port", Object: c.name, Errno: unix.ENETDOWN,
		Detail: state + ": set the network interface up, or connect the cable"}
}

// PKeys returns the P_Key table of a port, in host order. On iWARP there is none. It returns [ErrInvalid] if the device
// has no such port.
func (c *Context) PKeys(port int) ([]uint16, error) {
	if err := c.checkPort("read P_Keys", port); err != nil {
		return nil, err
	}
	if c.device.NodeType == NodeRNIC {
		return nil, nil
	}
	keys, err := machine.PKeys(c.machine, c.name, uint32(port))
	if err != nil {
		return nil, &Error{Op: "read P_Keys", Object: c.name, Errno: errnoOf(err), Detail: explainFDs(err), Err: err}
	}
	return keys, nil
}

// PKeyIndex returns the index of a P_Key in a port's table: ibv_get_pkey_index(3).
// It returns [ErrInvalid] if the table does not contain it. Bit 15 counts: full and
// limited membership are different keys.
func (c *Context) PKeyIndex(port int, pkey uint16) (int, error) {
	keys, err := c.PKeys(port)
	if err != nil {
		return 0, err
	}
	if i := slices.Index(keys, pkey); i >= 0 {
		return i, nil
	}
	return 0, invalid("find P_Key", c.name,
		fmt.Sprintf("the P_Key table of port %d does not have %#04x: it has %#04x", port, pkey, keys))
}

// QueryClock returns the device's clock, the clock of WC.Timestamp, in ticks of
// DeviceAttr.HCACoreClock: ibv_query_rt_values_ex(3). It returns [ErrNotSupported]
// if the device has no clock that a program may read, as on rxe, and [ErrClosed]
// after Close.
func (c *Context) QueryClock() (uint64, error) {
	p, ok := c.impl.(driver.Clock)
	return c.readClock(ok, func() (uint64, error) { return p.QueryClock() })
}

// QueryPortSpeed returns the speed of a port in units of 100 Mb/s:
// ibv_query_port_speed(3). It returns [ErrNotSupported] if the kernel or the device
// does not report it. [PortAttr] then has the speed and the number of lanes.
func (c *Context) QueryPortSpeed(port int) (uint64, error) {
	const op = "query port speed"
	if err := c.checkPort(op, port); err != nil {
		return 0, err
	}
	cmd := ioctl.Get()
	defer cmd.Put()
	cmd.Start(uapi.UVERBS_OBJECT_DEVICE, uapi.UVERBS_METHOD_QUERY_PORT_SPEED)
	cmd.Uint64(uapi.UVERBS_ATTR_QUERY_PORT_SPEED_PORT_NUM, uint64(port))
	speed := ioctl.OutOf[uint64](cmd, uapi.UVERBS_ATTR_QUERY_PORT_SPEED_RESP)
	if err := c.dev.Do(cmd); err != nil {
		detail := ""
		if notSupported(err) {
			detail = "this kernel or device does not report the speed of a port: multiply ActiveSpeed and ActiveWidth of " +
				"Context.QueryPort"
		}
		return 0, c.wrap(op, c.name, err, detail)
	}
	return *speed, nil
}
