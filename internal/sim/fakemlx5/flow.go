package fakemlx5

import (
	"encoding/binary"

	"github.com/goverbs/goverbs/internal/ioctl"
	"github.com/goverbs/goverbs/internal/sim/connectx/engine"
	"github.com/goverbs/goverbs/internal/sim/connectx/prm"
	"github.com/goverbs/goverbs/internal/uapi"
)

// flows has the device's rules of flows by handle. Each is in a separate group of the table.
type flows struct {
	places map[uint32]uint32
	groups map[uint32]uint32
	table  uint32
	next   uint32
}

// flowPlaces is the maximum number of flows. Flows without specifications come after all others.
const flowPlaces = 64

// openFlows creates the table.
func (k *Kernel) openFlows() {
	var err error
	k.raw.flows.table, err = k.adapter.HCA.CreateFlowTable(engine.FlowTableAttr{Level: 1, LogSize: 6})
	k.check(err)
	k.check(k.adapter.HCA.SetFlowTableRoot(engine.NICReceive, k.raw.flows.table))
}

// createFlow creates the flow of a request.
func (k *Kernel) createFlow(request []byte, handle uint32) {
	const headerSize, specLength = 24, 4 // of the request; where a specification has its length
	raw := k.rawPackets()
	r := ioctl.SliceOf[uapi.IbUverbsCreateFlow](request[:headerSize])[0]
	g, f := engine.FlowGroup{Criteria: 1}, engine.Flow{Forward: true}
	for specs := request[headerSize:]; len(specs) > 0; specs = specs[binary.LittleEndian.Uint16(specs[specLength:]):] {
		addSpec(specs, prm.FlowMatchOuter.Bytes(g.Mask[:]), prm.FlowMatchOuter.Bytes(f.Match[:]), &f)
	}
	raw.flows.next++
	place := raw.flows.next
	if r.FlowAttr.NumOfSpecs == 0 {
		place = flowPlaces - raw.flows.next
	}
	g.First, g.Last = place, place
	group, err := k.adapter.HCA.CreateFlowGroup(raw.flows.table, g)
	k.check(err)
	f.Group = group
	f.Dests = []engine.FlowDest{{Type: engine.FlowToTIR, Number: raw.qps[r.QpHandle].tir.Number}}
	k.check(k.adapter.HCA.SetFlow(raw.flows.table, place, f))
	raw.flows.places[handle], raw.flows.groups[handle] = place, group
}

// The types of specifications: enum ib_flow_spec_type.
const (
	specEthernet = 0x20
	specIPv4     = 0x30
	specUDP      = 0x41
	specTag      = 0x1000
)

// addSpec adds a specification to the match of a flow.
func addSpec(b, mask, match []byte, f *engine.Flow) {
	const headerSize = 8
	be16 := binary.BigEndian.Uint16
	half := (int(binary.LittleEndian.Uint16(b[4:])) - headerSize) / 2 // the values, then their mask
	for i, m := range [][]byte{match, mask} {
		v := b[headerSize+i*half:]
		switch binary.LittleEndian.Uint32(b) {
		case specEthernet:
			copy(prm.FlowHeadersDMAC.Bytes(m), v[:6])
			copy(prm.FlowHeadersSMAC.Bytes(m), v[6:12])
			prm.FlowHeadersEthertype.Set(m, uint64(be16(v[12:])))
			if mask := b[headerSize+half:]; be16(mask[14:]) != 0 {
				setTag(m, uint64(be16(v[14:])))
			}
		case specIPv4:
			prm.FlowHeadersIPVersion.Set(m, uint64(4|11*i))
			copy(prm.FlowHeadersSrcIP.Bytes(m)[12:], v[:4])
			copy(prm.FlowHeadersDstIP.Bytes(m)[12:], v[4:8])
		case specUDP:
			prm.FlowHeadersIPProtocol.Set(m, uint64(17|0xff*i))
			prm.FlowHeadersUDPDport.Set(m, uint64(be16(v)))
			prm.FlowHeadersUDPSport.Set(m, uint64(be16(v[2:])))
		case specTag:
			f.Tag = binary.LittleEndian.Uint32(b[headerSize:])
		}
	}
}

// setTag sets a VLAN tag in a match or its mask.
func setTag(m []byte, tag uint64) {
	prm.FlowHeadersCvlanTag.Set(m, 1)
	prm.FlowHeadersFirstVid.Set(m, tag&0xfff)
	prm.FlowHeadersFirstCFI.Set(m, tag>>12&1)
	prm.FlowHeadersFirstPrio.Set(m, tag>>13)
}

func (k *Kernel) destroyFlow(h uint32) error {
	f := &k.raw.flows
	place, group := f.places[h], f.groups[h]
	delete(f.places, h)
	delete(f.groups, h)
	if err := k.adapter.HCA.DeleteFlow(f.table, place); err != nil {
		return err
	}
	return k.adapter.HCA.DestroyFlowGroup(f.table, group)
}
