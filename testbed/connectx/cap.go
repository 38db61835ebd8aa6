package connectx

import (
	"fmt"
	"slices"

	"github.com/goverbs/goverbs/internal/sim/connectx/prm"
)

// A CapType is a type of capabilities in QUERY_HCA_CAP.
type CapType uint8

const (
	CapGeneral   CapType = 0
	CapEthernet  CapType = 1
	CapODP       CapType = 2
	CapAtomic    CapType = 3
	CapRoCE      CapType = 4
	CapFlowTable CapType = 7
	CapQoS       CapType = 12
	CapDevMem    CapType = 15
	CapGeneral2  CapType = 0x20
)

// A Capability is the value of a capability. The fields are in package prm:
// HCACap…, EthCap…, AtomicCap…, RoCECap….
type Capability struct {
	Type  CapType
	Field prm.Field
	Value uint64
}

// capPage is the size of a page of capabilities.
const capPage = 4096

// capabilities has the pages of capabilities: the maximum values, and the
// current ones set by the driver.
type capabilities struct {
	most, current map[CapType][]byte
	rows          []Capability
}

// Offered returns the capabilities of a device with a link layer, with their
// maximum values. The default of a capability that disables something is 0.
func Offered(link LinkLayer) []Capability {
	common := slices.Concat(offered, offeredDC, offeredReserved, offeredDeviceMemory, offeredDevX, offeredOrdering,
		restrictions)
	if link == Ethernet {
		return slices.Concat(common, offeredEthernet, offeredLAG, offeredPacing)
	}
	return slices.Concat(common, offeredInfiniBand)
}

// offeredBy is like Offered, for a device with the given configuration.
func offeredBy(config *Config) []Capability {
	rows := Offered(config.LinkLayer)
	if config.ODP {
		rows = slices.Concat(rows, offeredODP)
	}
	return rows
}

// newCapabilities returns the capabilities of a device.
func newCapabilities(config *Config) (capabilities, error) {
	c := capabilities{most: make(map[CapType][]byte), rows: offeredBy(config)}
	for _, r := range c.rows {
		if c.most[r.Type] == nil {
			c.most[r.Type] = make([]byte, capPage)
		}
		if !slices.Contains(restrictions, r) {
			r.Field.Set(c.most[r.Type], r.Value)
		}
	}
	if config.LinkLayer == Ethernet {
		offerMatches(c.most[CapFlowTable])
	} else {
		c.most[CapFlowTable] = make([]byte, capPage) // programs query it by DevX, and find no flow tables
	}
	for _, r := range config.Capabilities {
		if r.Value == 0 && r.Field.Width <= 64 && c.most[r.Type] == nil {
			continue
		}
		most, ok := c.bound(r)
		if !ok || r.Value > most {
			return c, fmt.Errorf("connectx: capability %s = %d is not implemented: the maximum is %d", r.Field.Name, r.Value,
				most)
		}
	}
	for _, r := range config.Capabilities {
		if page := c.most[r.Type]; page != nil {
			r.Field.Set(page, r.Value)
		}
	}
	return c, nil
}

// bound returns the maximum value of a capability.
func (c *capabilities) bound(r Capability) (uint64, bool) {
	if page := c.most[r.Type]; page == nil || r.Field.Width <= 0 || r.Field.Width > 64 ||
		(r.Field.Offset+r.Field.Width) > capPage*8 {
		return 0, false
	}
	for _, row := range c.rows {
		if row.Type == r.Type && row.Field == r.Field {
			return row.Value, true
		}
	}
	return 0, r.Value == 0
}

// reset restores the values that the driver has changed.
func (c *capabilities) reset() {
	c.current = make(map[CapType][]byte)
	for t, page := range c.most {
		c.current[t] = append([]byte(nil), page...)
	}
	if page := c.current[CapAtomic]; page != nil {
		prm.AtomicCapAtomicReq8BEndiannessMode.Set(page, 0)
	}
	if page := c.current[CapODP]; page != nil { // the driver must enable these
		prm.ODPCapRC.Set(page, prm.ODPCapRC.Get(page)&^odpSRQ)
		prm.ODPCapUD.Set(page, prm.ODPCapUD.Get(page)&^odpSRQ)
		prm.ODPCapXRC.Set(page, 0)
		prm.ODPCapDC.Set(page, 0)
	}
	prm.HCACapUAR4k.Set(c.current[CapGeneral], 0) // the driver enables it
	prm.HCACapNumOfUARsPerPage.Set(c.current[CapGeneral], 1)
}

// general returns the current value of a general capability.
func (c *capabilities) general(f prm.Field) uint64 { return f.Get(c.current[CapGeneral]) }

// page returns a page of capabilities, with maximum or current values, or nil
// if the device has no such page.
func (c *capabilities) page(t CapType, current bool) []byte {
	if current {
		return c.current[t]
	}
	return c.most[t]
}

// driverSet are general capabilities that the driver may set to any value.
var driverSet = []prm.Field{prm.HCACapLogUARPageSize}

// set sets the current capabilities of a page. No value may exceed the maximum.
// Of the atomic capabilities only the byte order can be set.
func (c *capabilities) set(t CapType, in []byte) error {
	page := c.current[t]
	switch {
	case page == nil || t != CapGeneral && t != CapAtomic && t != CapRoCE && t != CapODP:
		return refuse(statusBadParam, reasonOpMod)
	case t == CapAtomic:
		f := prm.AtomicCapAtomicReq8BEndiannessMode
		if v := f.Get(in); v > 1 || v == 1 && !prm.AtomicCapSupportedAtomicReq8BEndiannessMode1.Is(page) {
			return refuse(statusBadParam, reasonCapability)
		}
		f.Set(page, f.Get(in))
		return nil
	}
	rest := append([]byte(nil), in...)
	for _, f := range driverSet {
		f.Set(rest, 0)
	}
	for _, row := range c.rows {
		if row.Type == t {
			if row.Field.Get(in) > row.Field.Get(c.most[t]) {
				return &refusal{statusBadParam, reasonCapability, row.Field.Name}
			}
			row.Field.Set(rest, 0)
		}
	}
	for i, b := range rest {
		if b != 0 {
			return &refusal{statusBadParam, reasonCapability, fmt.Sprintf("byte %#x of the page is %#x", i, b)}
		}
	}
	if t == CapGeneral && prm.HCACapLogUARPageSize.Get(in) > maxLogUARPage {
		return &refusal{statusBadParam, reasonCapability, prm.HCACapLogUARPageSize.Name}
	}
	copy(page, in)
	if t == CapGeneral {
		prm.HCACapNumOfUARsPerPage.Set(page, 1)
		if prm.HCACapUAR4k.Is(page) {
			prm.HCACapNumOfUARsPerPage.Set(page, 1<<prm.HCACapLogUARPageSize.Get(page))
		}
	}
	return nil
}

func (d *Device) queryHCACap(in, out []byte) error {
	mod := prm.CmdOpMod.Get(in)
	page := d.caps.page(CapType(mod>>1), mod&1 != 0)
	if page == nil || mod>>1 > 0xff {
		return refuse(statusBadParam, reasonOpMod)
	}
	copy(prm.QueryHCACapOutCapability.Bytes(out), page)
	return nil
}

func (d *Device) setHCACap(in, out []byte) error {
	mod := prm.CmdOpMod.Get(in)
	if mod > 0x1ff {
		return refuse(statusBadParam, reasonOpMod)
	}
	if d.running {
		return refuse(statusBadSystemState, reasonRunning)
	}
	return d.caps.set(CapType(mod>>1), prm.SetHCACapInCapability.Bytes(in))
}
