package devinfo

import (
	"encoding/json"
	"fmt"
	"io"

	"github.com/goverbs/goverbs/uverbs"
	"github.com/goverbs/goverbs/uverbs/ether"
)

// The JSON document is a list of devices. Its keys are the field names of the Go
// API, so that new attributes of the library appear without a change here. Numeric
// codes are replaced by their text.

type deviceDocument struct {
	Name        string
	Driver      string
	DriverABI   uint64
	Node        string // the character device
	Transport   string
	BoardID     string `json:",omitempty"`
	CompVectors int
	*uverbs.DeviceAttr
	*etherAttr
	NodeGUID     string // replaces the number in DeviceAttr
	SysImageGUID string
	AtomicCap    string
	Ports        []portDocument
}

// etherAttr is embedded beside another DeviceAttr.
type etherAttr = ether.DeviceAttr

type portDocument struct {
	Port int
	*uverbs.PortAttr
	State     string // replaces the codes in PortAttr
	LinkLayer string
	MaxMTU    int // bytes
	ActiveMTU int
	GIDs      []gidDocument
	PKeys     []string // such as "0xffff", in the order of the port's table
}

type gidDocument struct {
	Index  int
	GID    string // as an IP address
	Type   string
	Netdev string `json:",omitempty"`
}

func document(d *deviceInfo) deviceDocument {
	a := d.attr
	doc := deviceDocument{Name: d.device.Name, Driver: d.device.Driver(), DriverABI: d.device.ABI, Node: d.device.Node,
		Transport: transportOf(d.device.NodeType).String(), BoardID: d.boardID, CompVectors: d.vectors,
		DeviceAttr: a, etherAttr: d.ether, NodeGUID: a.NodeGUID.String(), SysImageGUID: a.SysImageGUID.String(),
		AtomicCap: name(atomicCaps, a.AtomicCap, "unknown"), Ports: []portDocument{}}
	for i := range d.ports {
		doc.Ports = append(doc.Ports, documentPort(&d.ports[i]))
	}
	return doc
}

func documentPort(p *portInfo) portDocument {
	a := p.attr
	doc := portDocument{Port: p.number, PortAttr: a, State: a.State.String(), LinkLayer: a.LinkLayer.String(),
		MaxMTU: a.MaxMTU.Bytes(), ActiveMTU: a.ActiveMTU.Bytes(), GIDs: []gidDocument{}, PKeys: []string{}}
	for _, g := range p.gids {
		doc.GIDs = append(doc.GIDs, gidDocument{Index: g.Index, GID: g.GID.String(), Type: g.Type.String(), Netdev: g.Netdev})
	}
	for _, k := range p.pkeys {
		doc.PKeys = append(doc.PKeys, fmt.Sprintf("0x%04x", k))
	}
	return doc
}

// printJSON prints the devices as a JSON document.
func printJSON(w io.Writer, infos []*deviceInfo) error {
	docs := []deviceDocument{}
	for _, d := range infos {
		docs = append(docs, document(d))
	}
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(docs)
}
