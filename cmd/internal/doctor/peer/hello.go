package peer

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"time"
	"unicode"

	"github.com/goverbs/goverbs/uverbs"
)

// version is the version of the protocol. Ends of different versions do not work together.
const version = 1

// maxHello limits what is read from the other end.
const maxHello = 4096

// A hello is what an end says about itself.
type hello struct {
	Version   int
	Device    string
	Port      int
	Driver    string
	Firmware  string
	MTU       int // active RDMA MTU in bytes
	Datagrams *uverbs.Endpoint

	// The listening end says why it does not serve the other one: it serves as many others as it can, or it cannot use
	// its device.
	Busy  int    `json:",omitempty"`
	Fault string `json:",omitempty"`
}

// errBusy means that the peer serves as many others as it can.
var errBusy = errors.New("the peer is busy")

// refusal returns why the other end does not serve this one, or nil.
func (h *hello) refusal() error {
	switch {
	case h.Busy != 0:
		return fmt.Errorf("%w: it serves %d others, and no more at a time", errBusy, h.Busy)
	case h.Fault != "":
		return fmt.Errorf("the peer cannot use its device: %s", h.Fault)
	}
	return nil
}

// exchange sends a hello and reads the other end's. The client sends first.
func exchange(ctx context.Context, c net.Conn, ours *hello, first bool) (*hello, error) {
	stop := context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) }) // an error shows when it is used
	defer stop()
	var theirs hello
	read := func() error {
		line, err := bufio.NewReaderSize(io.LimitReader(c, maxHello), maxHello).ReadBytes('\n')
		if err != nil {
			return err
		}
		if err := json.Unmarshal(line, &theirs); err != nil {
			return err
		}
		if theirs.Version != version {
			return fmt.Errorf("the peer's doctor has version %d of the protocol, this one %d", theirs.Version, version)
		}
		for _, s := range []*string{&theirs.Device, &theirs.Driver, &theirs.Firmware, &theirs.Fault} {
			*s = Printable(*s)
		}
		return theirs.refusal()
	}
	write := func() error { return json.NewEncoder(c).Encode(ours) }
	if first {
		return &theirs, errors.Join(write(), read())
	}
	return &theirs, errors.Join(read(), write())
}

// Printable returns s without what a terminal interprets.
func Printable(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return -1
	}, s)
}

// An end is the device of one end of the connection.
type end struct {
	*uverbs.Context
	gid  *uverbs.GIDEntry
	port *uverbs.PortAttr
}

// openEnd opens the device that has a GID for a local address, or else the first device with an active port.
func openEnd(local netip.Addr) (*end, error) {
	devices, err := uverbs.Devices()
	if err != nil {
		return nil, err
	}
	for _, d := range devices {
		c, err := d.Open()
		if err != nil {
			continue // the checks of this machine report it
		}
		if e := endAt(c, d.Ports, local); e != nil {
			return e, nil
		}
		if err := c.Close(); err != nil {
			return nil, err
		}
	}
	c, err := uverbs.Open("")
	if err != nil {
		return nil, err
	}
	gid, err := c.SelectGID(0, netip.Addr{})
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return newEnd(c, gid)
}

// endAt returns the end of a device that has a GID for an address, or nil.
func endAt(c *uverbs.Context, ports int, local netip.Addr) *end {
	for n := 1; n <= ports; n++ {
		table, err := c.GIDs(n)
		if err != nil {
			continue
		}
		for _, g := range table {
			if g.GID.Addr().Unmap() != local || g.Type != uverbs.GIDTypeRoCEv2 {
				continue
			}
			if e, err := newEnd(c, &g); err == nil {
				return e
			}
		}
	}
	return nil
}

func newEnd(c *uverbs.Context, gid *uverbs.GIDEntry) (*end, error) {
	p, err := c.QueryPort(gid.Port)
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return &end{Context: c, gid: gid, port: p}, nil
}

// hello returns what the end says about itself.
func (e *end) hello(d *datagrams) *hello {
	dev := e.Device()
	h := &hello{Version: version, Device: dev.Name, Port: e.gid.Port, Driver: dev.Driver(), Firmware: dev.FWVersion,
		MTU: e.port.ActiveMTU.Bytes()}
	if d != nil {
		h.Datagrams = &d.endpoint
	}
	return h
}
