package connectx

import (
	"encoding/binary"

	"github.com/goverbs/goverbs/internal/sim/connectx/engine"
	"github.com/goverbs/goverbs/internal/sim/connectx/prm"
)

// portCommands are the commands of the port, for both link layers.
var portCommands = []command{
	{0x50d, "MAD_IFC", prm.MADIFCIn, prm.MADIFCOut, running, (*Device).madIFC},
	{0x750, "QUERY_VPORT_STATE", prm.QueryVportStateIn, prm.QueryVportStateOut, running, (*Device).queryVportState},
	{0x751, "MODIFY_VPORT_STATE", prm.ModifyVportStateIn, prm.ModifyVportStateOut, running, (*Device).modifyVportState},
	{0x754, "QUERY_NIC_VPORT_CONTEXT", prm.QueryNICVportContextIn, prm.QueryNICVportContextOut, inEth,
		(*Device).queryNICVport},
	{0x755, "MODIFY_NIC_VPORT_CONTEXT", prm.ModifyNICVportContextIn, prm.ModifyNICVportContextOut, inEth,
		(*Device).modifyNICVport},
	{0x762, "QUERY_HCA_VPORT_CONTEXT", prm.QueryHCAVportContextIn, prm.QueryHCAVportContextOut, inIB,
		(*Device).queryHCAVport},
	{0x763, "MODIFY_HCA_VPORT_CONTEXT", prm.ModifyHCAVportContextIn, prm.ModifyHCAVportContextOut, inIB,
		(*Device).modifyHCAVport},
	{0x764, "QUERY_HCA_VPORT_GID", prm.QueryHCAVportGIDIn, prm.QueryHCAVportGIDOut, inIB, (*Device).queryHCAVportGID},
	{0x765, "QUERY_HCA_VPORT_PKEY", prm.QueryHCAVportPKeyIn, prm.QueryHCAVportPKeyOut, running,
		(*Device).queryHCAVportPKey},
	{0x770, "QUERY_VPORT_COUNTER", prm.QueryVportCounterIn, prm.QueryVportCounterOut, running,
		(*Device).queryVportCounter},
	{0x805, "ACCESS_REG", prm.AccessRegisterIn, prm.AccessRegisterOut, enabled, (*Device).accessRegister},
	{0x829, "SET_L2_TABLE_ENTRY", prm.SetL2TableEntryIn, prm.SetL2TableEntryOut, inEth, (*Device).setL2Entry},
	{0x82a, "QUERY_L2_TABLE_ENTRY", prm.QueryL2TableEntryIn, prm.QueryL2TableEntryOut, inEth, (*Device).queryL2Entry},
	{0x82b, "DELETE_L2_TABLE_ENTRY", prm.DeleteL2TableEntryIn, prm.DeleteL2TableEntryOut, inEth, (*Device).deleteL2Entry},
}

// States of a port, as in the IBA.
const (
	stateDown   = 1
	stateActive = 4

	physicalPolling = 2
	physicalLinkUp  = 5
)

// Bits of the InfiniBand port's capability mask that a host may change: SM,
// communication management, SNMP, device management, vendor class and boot
// management.
const changeableCapMask = 1<<1 | 1<<16 | 1<<17 | 1<<19 | 1<<20 | 1<<25

// subnetTimeout is the maximum time of a packet in the subnet: 4.096 µs << 18.
const subnetTimeout = 18

// portState is the state of the port. Attributes set by a driver are dropped
// with its objects; the link state remains.
type portState struct {
	capMask     uint32
	nic         []byte // the NIC vport's context
	lists       [3][]uint64
	l2          map[uint64][8]byte
	admin       uint8
	description [64]byte
	pmtu        uint16
	flowControl [32]byte // register PFCC
}

func newPort(c *Config) portState {
	p := portState{nic: make([]byte, prm.NICVport.Size)}
	prm.NICVportPermanentAddress.Set(p.nic, mac48(c.MAC))
	prm.NICVportNodeGUID.Set(p.nic, c.GUID)
	prm.NICVportPortGUID.Set(p.nic, c.GUID)
	prm.NICVportSystemImageGUID.Set(p.nic, c.GUID)
	prm.NICVportMTU.Set(p.nic, ethernetMTU)
	copy(p.description[:], "goverbs ConnectX")
	return p
}

func mac48(m [6]byte) uint64 {
	return uint64(binary.BigEndian.Uint16(m[:2]))<<32 | uint64(binary.BigEndian.Uint32(m[2:]))
}

// restart drops the attributes set by a driver.
func (p *portState) restart() {
	p.capMask, p.admin, p.pmtu, p.flowControl = 0, stateUp, 0, [32]byte{}
	p.l2 = make(map[uint64][8]byte)
	clear(p.lists[:])
	if p.nic != nil {
		prm.NICVportRoCEEn.Set(p.nic, 0)
		prm.NICVportMTU.Set(p.nic, ethernetMTU)
		for _, f := range []prm.Field{prm.NICVportPromiscUC, prm.NICVportPromiscMC, prm.NICVportPromiscAll,
			prm.NICVportDisableUCLocalLB, prm.NICVportDisableMCLocalLB} {
			f.Set(p.nic, 0)
		}
	}
}

// portStates returns the logical and the physical state of the port.
func (d *Device) portStates() (logical, physical uint64) {
	if d.hca.Up() {
		return stateActive, physicalLinkUp
	}
	return stateDown, physicalPolling
}

// address sets the port's fixed addresses.
func (d *Device) address() {
	d.hca.SetMAC(d.config.MAC)
	d.setLoopback()
	if d.config.LinkLayer == InfiniBand {
		d.hca.SetLID(d.config.LID)
		d.setGID(0, engine.GIDEntry{GID: d.gid()})
	}
	if err := d.hca.SetPKey(0, defaultPKey); err != nil {
		d.report("P_Key 0: %w", err)
	}
}

func (d *Device) setGID(index int, e engine.GIDEntry) {
	if err := d.hca.SetGID(index, e); err != nil {
		d.report("GID %d: %w", index, err)
	}
}

// ownPort checks that a command is for this function's port.
func ownPort(in []byte, other, number prm.Field) error {
	if other.Is(in) || number.Get(in) > 1 {
		return refuse(statusBadParam, reasonPort)
	}
	return nil
}

func (d *Device) queryHCAVport(in, out []byte) error {
	if err := ownPort(in, prm.QueryHCAVportContextInOtherVport, prm.QueryHCAVportContextInPortNum); err != nil {
		return err
	}
	c := prm.QueryHCAVportContextOutHCAVport.Bytes(out)
	logical, physical := d.portStates()
	prm.HCAVportHasSmi.Set(c, 1)
	prm.HCAVportPortPhysicalState.Set(c, physical)
	prm.HCAVportPortState.Set(c, logical)
	prm.HCAVportVportState.Set(c, logical)
	prm.HCAVportSystemImageGUID.Set(c, d.config.GUID)
	prm.HCAVportPortGUID.Set(c, d.config.GUID)
	prm.HCAVportNodeGUID.Set(c, d.config.GUID)
	prm.HCAVportCapMask1.Set(c, uint64(d.port.capMask))
	prm.HCAVportCapMask1FieldSelect.Set(c, changeableCapMask)
	prm.HCAVportSubnetTimeout.Set(c, subnetTimeout)
	if d.hca.Up() {
		prm.HCAVportLID.Set(c, uint64(d.config.LID))
		prm.HCAVportSMLID.Set(c, 1)
	}
	return nil
}

// modifyHCAVport changes the capability mask. The host cannot change GUIDs.
func (d *Device) modifyHCAVport(in, out []byte) error {
	if err := ownPort(in, prm.ModifyHCAVportContextInOtherVport, prm.ModifyHCAVportContextInPortNum); err != nil {
		return err
	}
	c := prm.ModifyHCAVportContextInHCAVport.Bytes(in)
	mask := uint32(prm.HCAVportCapMask1FieldSelect.Get(c))
	if mask&^changeableCapMask != 0 || prm.HCAVportFieldSelect.Is(c) {
		return refuse(statusBadParam, reasonCapability)
	}
	d.port.capMask = d.port.capMask&^mask | uint32(prm.HCAVportCapMask1.Get(c))&mask
	return nil
}

// wholeTable as an index means the whole table.
const wholeTable = 0xffff

// pick returns the range of the requested entries of a table of n.
func pick(index uint64, n int) (first, count int, err error) {
	if index == wholeTable {
		return 0, n, nil
	}
	if index >= uint64(n) {
		return 0, 0, refuse(statusBadParam, reasonIndex)
	}
	return int(index), 1, nil
}

func (d *Device) queryHCAVportGID(in, out []byte) error {
	if err := ownPort(in, prm.QueryHCAVportGIDInOtherVport, prm.QueryHCAVportGIDInPortNum); err != nil {
		return err
	}
	first, n, err := pick(prm.QueryHCAVportGIDInGIDIndex.Get(in), d.gids())
	if err != nil {
		return err
	}
	gids := prm.QueryHCAVportGIDOutGID.Rest(out)
	if len(gids) < 16*n {
		return refuse(statusBadOutputLength, reasonLength)
	}
	if first == 0 {
		gid := d.gid()
		copy(gids, gid[:])
	}
	prm.QueryHCAVportGIDOutGIDsNum.Set(out, uint64(n))
	return nil
}

// gid returns the port's GID on InfiniBand, with the default subnet prefix.
func (d *Device) gid() (gid [16]byte) {
	gid[0], gid[1] = 0xfe, 0x80
	binary.BigEndian.PutUint64(gid[8:], d.config.GUID)
	return gid
}

// defaultPKey is the only P_Key: full membership of the default partition.
const defaultPKey = 0xffff

func (d *Device) queryHCAVportPKey(in, out []byte) error {
	if err := ownPort(in, prm.QueryHCAVportPKeyInOtherVport, prm.QueryHCAVportPKeyInPortNum); err != nil {
		return err
	}
	first, n, err := pick(prm.QueryHCAVportPKeyInPKeyIndex.Get(in), d.pkeys())
	if err != nil {
		return err
	}
	if len(prm.QueryHCAVportPKeyOutPKey.Rest(out)) < 4*n {
		return refuse(statusBadOutputLength, reasonLength)
	}
	if first == 0 {
		prm.QueryHCAVportPKeyOutPKey.Set(out, defaultPKey)
	}
	return nil
}

// A vportCounter has the fields of packets and octets.
type vportCounter struct{ packets, octets prm.Field }

// The counters of packets and frames that are received and sent, by destination.
var (
	packetsReceived = []vportCounter{
		{prm.QueryVportCounterOutReceivedIBUnicastPackets, prm.QueryVportCounterOutReceivedIBUnicastOctets},
		{prm.QueryVportCounterOutReceivedIBMulticastPackets, prm.QueryVportCounterOutReceivedIBMulticastOctets},
	}
	packetsSent = []vportCounter{
		{prm.QueryVportCounterOutTransmittedIBUnicastPackets, prm.QueryVportCounterOutTransmittedIBUnicastOctets},
		{prm.QueryVportCounterOutTransmittedIBMulticastPackets, prm.QueryVportCounterOutTransmittedIBMulticastOctets},
	}
	framesReceived = []vportCounter{
		{prm.QueryVportCounterOutReceivedEthUnicastPackets, prm.QueryVportCounterOutReceivedEthUnicastOctets},
		{prm.QueryVportCounterOutReceivedEthMulticastPackets, prm.QueryVportCounterOutReceivedEthMulticastOctets},
		{prm.QueryVportCounterOutReceivedEthBroadcastPackets, prm.QueryVportCounterOutReceivedEthBroadcastOctets},
	}
	framesSent = []vportCounter{
		{prm.QueryVportCounterOutTransmittedEthUnicastPackets, prm.QueryVportCounterOutTransmittedEthUnicastOctets},
		{prm.QueryVportCounterOutTransmittedEthMulticastPackets, prm.QueryVportCounterOutTransmittedEthMulticastOctets},
		{prm.QueryVportCounterOutTransmittedEthBroadcastPackets, prm.QueryVportCounterOutTransmittedEthBroadcastOctets},
	}
)

func (d *Device) queryVportCounter(in, out []byte) error {
	if err := ownPort(in, prm.QueryVportCounterInOtherVport, prm.QueryVportCounterInPortNum); err != nil {
		return err
	}
	set := func(fields []vportCounter, counters []engine.Traffic) {
		for i, f := range fields {
			f.packets.Set(out, counters[i].Packets)
			f.octets.Set(out, counters[i].Bytes)
		}
	}
	c := d.hca.PortCounters()
	set(packetsReceived, c.Received[:])
	set(packetsSent, c.Sent[:])
	set(framesReceived, c.FramesReceived[:])
	set(framesSent, c.FramesSent[:])
	return nil
}
