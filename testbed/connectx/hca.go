package connectx

import (
	"github.com/goverbs/goverbs/internal/sim/connectx/prm"
)

// hcaCommands are the commands of the device as a whole, which a driver needs
// to probe.
var hcaCommands = []command{
	{0x100, "QUERY_HCA_CAP", prm.QueryHCACapIn, prm.QueryHCACapOut, enabled, (*Device).queryHCACap},
	{0x101, "QUERY_ADAPTER", prm.QueryAdapterIn, prm.QueryAdapterOut, enabled, (*Device).queryAdapter},
	{0x102, "INIT_HCA", prm.InitHCAIn, prm.InitHCAOut, enabled, (*Device).initHCA},
	{0x103, "TEARDOWN_HCA", prm.TeardownHCAIn, prm.TeardownHCAOut, enabled, (*Device).teardownHCA},
	{0x104, "ENABLE_HCA", prm.EnableHCAIn, prm.EnableHCAOut, always, (*Device).enableHCA},
	{0x105, "DISABLE_HCA", prm.DisableHCAIn, prm.DisableHCAOut, enabled, (*Device).disableHCA},
	{0x107, "QUERY_PAGES", prm.QueryPagesIn, prm.QueryPagesOut, enabled, (*Device).queryPages},
	{0x108, "MANAGE_PAGES", prm.ManagePagesIn, prm.ManagePagesOut, enabled, (*Device).managePages},
	{0x109, "SET_HCA_CAP", prm.SetHCACapIn, prm.SetHCACapOut, enabled, (*Device).setHCACap},
	{0x10a, "QUERY_ISSI", prm.QueryISSIIn, prm.QueryISSIOut, enabled, (*Device).queryISSI},
	{0x10b, "SET_ISSI", prm.SetISSIIn, prm.SetISSIOut, enabled, (*Device).setISSI},
	{0x301, "CREATE_EQ", prm.CreateEQIn, prm.CreateEQOut, running, (*Device).createEQ},
	{0x302, "DESTROY_EQ", prm.DestroyEQIn, prm.DestroyEQOut, running, (*Device).destroyEQ},
	{0x303, "QUERY_EQ", prm.QueryEQIn, prm.QueryEQOut, running, (*Device).queryEQ},
	{0x771, "ALLOC_Q_COUNTER", prm.AllocQCounterIn, prm.AllocQCounterOut, running, (*Device).allocQCounter},
	{0x772, "DEALLOC_Q_COUNTER", prm.DeallocQCounterIn, prm.DeallocQCounterOut, running, (*Device).deallocQCounter},
	{0x773, "QUERY_Q_COUNTER", prm.QueryQCounterIn, prm.QueryQCounterOut, running, (*Device).queryQCounter},
	{0x802, "ALLOC_UAR", prm.AllocUARIn, prm.AllocUAROut, running, (*Device).allocUAR},
	{0x803, "DEALLOC_UAR", prm.DeallocUARIn, prm.DeallocUAROut, running, (*Device).deallocUAR},
	{0x80d, "NOP", prm.NOPIn, prm.NOPOut, always, func(*Device, []byte, []byte) error { return nil }},
	{0x816, "ALLOC_TRANSPORT_DOMAIN", prm.AllocTransportDomainIn, prm.AllocTransportDomainOut, running,
		(*Device).allocTransportDomain},
	{0x817, "DEALLOC_TRANSPORT_DOMAIN", prm.DeallocTransportDomainIn, prm.DeallocTransportDomainOut, running,
		(*Device).deallocTransportDomain},
}

func (d *Device) enableHCA(in, out []byte) error {
	if prm.EnableHCAInFunctionID.Is(in) || prm.EnableHCAInEmbeddedCPUFunction.Is(in) {
		return refuse(statusBadParam, reasonPort)
	}
	d.enabled = true
	return nil
}

func (d *Device) disableHCA(in, out []byte) error {
	switch {
	case prm.DisableHCAInFunctionID.Is(in) || prm.DisableHCAInEmbeddedCPUFunction.Is(in):
		return refuse(statusBadParam, reasonPort)
	case d.running:
		return refuse(statusBadSystemState, reasonRunning)
	case len(d.pages.addrs) > 0:
		return refuse(statusBadSystemState, reasonPagesHeld)
	}
	d.disable()
	return nil
}

// The steering interface has version 0, which is not supported, and 1.
const supportedISSI = 1<<0 | 1<<1

func (d *Device) queryISSI(in, out []byte) error {
	if d.config.NoISSI {
		return refuse(statusBadOpcode, reasonISSI)
	}
	prm.QueryISSIOutCurrentISSI.Set(out, uint64(d.issi))
	prm.QueryISSIOutSupportedISSIDW0.Set(out, supportedISSI)
	return nil
}

func (d *Device) setISSI(in, out []byte) error {
	v := prm.SetISSIInCurrentISSI.Get(in)
	if d.config.NoISSI {
		return refuse(statusBadOpcode, reasonISSI)
	}
	if v > 31 || supportedISSI>>v&1 == 0 {
		return refuse(statusBadParam, reasonISSI)
	}
	d.issi = uint16(v)
	return nil
}

func (d *Device) initHCA(in, out []byte) error {
	switch {
	case d.running:
		return refuse(statusBadSystemState, reasonRunning)
	case len(d.pages.addrs) < d.config.BootPages+d.config.InitPages:
		return refuse(statusBadSystemState, reasonPagesMissing)
	}
	d.stop() // the driver sets the sizes of tables
	d.running, d.lost = true, uars{}
	return nil
}

func (d *Device) teardownHCA(in, out []byte) error {
	d.stop()
	return nil
}

// queryAdapter returns vendor and board.
func (d *Device) queryAdapter(in, out []byte) error {
	adapter := prm.QueryAdapterOutAdapter.Bytes(out)
	prm.AdapterIEEEVendorID.Set(adapter, 0x2c9)
	prm.AdapterVSDVendorID.Set(adapter, 0x15b3)
	copy(prm.AdapterVSDContdPSID.Bytes(adapter), "GOV_0000000001")
	return nil
}

func (d *Device) allocUAR(in, out []byte) error {
	page, err := d.uars.add()
	return writeNumber(prm.AllocUAROutUAR, out, page, err)
}

func (d *Device) deallocUAR(in, out []byte) error {
	uar := uint32(prm.DeallocUARInUAR.Get(in))
	for _, eq := range d.eqs.queues {
		if eq != nil && d.uars.first(eq.uar) == uar {
			return refuse(statusBusy, reasonInUse)
		}
	}
	return d.uars.remove(uar)
}

func (d *Device) allocTransportDomain(in, out []byte) error {
	return d.domains.alloc(prm.AllocTransportDomainOutTransportDomain, out)
}

func (d *Device) deallocTransportDomain(in, out []byte) error {
	return d.domains.remove(uint32(prm.DeallocTransportDomainInTransportDomain.Get(in)))
}

func (d *Device) allocQCounter(in, out []byte) error {
	return d.counters.alloc(prm.AllocQCounterOutCounterSetID, out)
}

func (d *Device) deallocQCounter(in, out []byte) error {
	return d.counters.remove(uint32(prm.DeallocQCounterInCounterSetID.Get(in)))
}

// queryQCounter returns zero counters.
func (d *Device) queryQCounter(in, out []byte) error {
	if prm.QueryQCounterInOtherVport.Is(in) || prm.QueryQCounterInAggregate.Is(in) {
		return refuse(statusBadParam, reasonPort)
	}
	if !d.counters.has(uint32(prm.QueryQCounterInCounterSetID.Get(in))) {
		return refuse(statusBadResource, reasonUnknown)
	}
	return nil
}
