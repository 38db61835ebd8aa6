package perftest

import (
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"strings"

	"github.com/goverbs/goverbs/uverbs"
)

// findDevice opens the device with a name, or the first device if name is empty.
func findDevice(name string) (*uverbs.Context, error) {
	if name == "" {
		all, err := uverbs.Devices()
		if err != nil {
			return nil, err
		}
		if len(all) == 0 {
			return nil, fmt.Errorf("%w: load the adapter's driver, or create a software device: rdma link add rxe0 type rxe "+
				"netdev <interface>", uverbs.ErrNoDevice)
		}
		name = all[0].Name
	}
	return uverbs.Open(name)
}

// openDevice opens the device of a test and sets the options that depend on it: GID,
// MTU and inline size.
func openDevice(o *Options, find func(name string) (*uverbs.Context, error)) (*uverbs.Context, error) {
	dev, err := find(o.Device)
	if err != nil {
		return nil, err
	}
	if err := o.fit(dev); err != nil {
		return nil, errors.Join(err, dev.Close())
	}
	return dev, nil
}

// fit checks the options against the device's attributes, and sets those that depend on
// them.
func (o *Options) fit(dev *uverbs.Context) error {
	o.device = dev.Name()
	port, err := dev.QueryPort(o.IBPort)
	if err != nil {
		return &Error{Side: Here, Option: "-i", Err: err}
	}
	if port.State != uverbs.PortActive {
		return here("-i", "port %d of %s is in state %v: bring its link up, or choose another with -i or -d", o.IBPort,
			o.device, port.State)
	}
	o.link, o.lid = port.LinkLayer, port.LID
	o.iwarp = dev.Device().NodeType == uverbs.NodeRNIC
	if o.Inline < 0 {
		o.Inline = o.usualInline(dev.Device().Driver())
	}
	if err := o.fitIWARP(); err != nil {
		return err
	}
	if err := o.fitMTU(port); err != nil {
		return err
	}
	if err := o.fitSize(port); err != nil {
		return err
	}
	for _, fit := range []func(*uverbs.Context) error{o.fitOuts, o.fitOrder, o.fitGroup, o.fitGID, o.fitRate} {
		if err := fit(dev); err != nil {
			return err
		}
	}
	return nil
}

// fitIWARP refuses what iWARP does not have. There a SEND that finds no receive ends the connection, so C's programs
// exchange credits in tests of the bandwidth of SENDs.
func (o *Options) fitIWARP() error {
	switch {
	case !o.iwarp:
		return nil
	case !o.RDMACM:
		return here("-R", "%s is an iWARP device, whose QPs only rdma_cm connects: set -R", o.device)
	case o.Verb == Send && o.Bandwidth:
		return fmt.Errorf("%w: on iWARP, C's programs exchange credits in tests of the bandwidth of SENDs, and this one "+
			"does not: measure send_lat or write_bw", uverbs.ErrNotSupported)
	}
	return nil
}

func (o *Options) fitMTU(port *uverbs.PortAttr) error {
	o.mtu = port.ActiveMTU
	if o.MTU == 0 {
		return nil
	}
	code := uverbs.MTU(bits.Len(uint(o.MTU)) - 8)
	if code.Bytes() != o.MTU {
		return here("-m", "%d is not one of 256, 512, 1024, 2048 and 4096", o.MTU)
	}
	if code > port.ActiveMTU {
		return here("-m", "port %d has an active MTU of %d: raise the MTU of its network interface, or choose a smaller one",
			o.IBPort, port.ActiveMTU.Bytes())
	}
	o.mtu = code
	return nil
}

func (o *Options) fitSize(port *uverbs.PortAttr) error {
	limit, what := int(port.MaxMsgSize), "the longest message of "+o.device
	if o.Type == uverbs.UD {
		limit, what = o.mtu.Bytes(), "the MTU, which limits a datagram"
	}
	if limit == 0 || o.Size <= limit {
		return nil
	}
	if o.given['s'] {
		return here("-s", "%d bytes are more than %d, %s", o.Size, limit, what)
	}
	o.Size = limit
	return nil
}

// usualInline returns the inline size of latency tests that perftest uses for a driver.
func (o *Options) usualInline(driver string) int {
	if o.Bandwidth || driver != "mlx5" {
		return 0
	}
	switch {
	case o.dc() && !o.fetches():
		return dcInline
	case o.Verb != Send:
		return 220
	case o.Type == uverbs.UD:
		return 188
	}
	return 236
}

func (o *Options) fitOuts(dev *uverbs.Context) error {
	if !o.fetches() {
		o.Outs = 1
		return nil
	}
	attr, err := dev.QueryDevice()
	if err != nil {
		return err
	}
	if o.Verb == Atomic && attr.AtomicCap == uverbs.AtomicNone {
		return fmt.Errorf("%w: %s has no atomics", uverbs.ErrNotSupported, o.device)
	}
	if o.Outs > attr.MaxQPRdAtom {
		return here("-o", "%s supports at most %d outstanding READs and atomics", o.device, attr.MaxQPRdAtom)
	}
	if o.Outs == 0 {
		o.Outs = min(attr.MaxQPRdAtom, 255)
	}
	return nil
}

// fitGID selects the GID. On InfiniBand none is used unless -x is given.
func (o *Options) fitGID(dev *uverbs.Context) error {
	if o.GIDIndex >= 0 {
		g, err := dev.QueryGID(o.IBPort, o.GIDIndex)
		if err != nil {
			return o.noGID(dev, err)
		}
		o.gid, o.withGID = *g, true
		return nil
	}
	if o.link != uverbs.LinkEthernet {
		return nil
	}
	all, err := dev.GIDs(o.IBPort)
	if err != nil {
		return err
	}
	if len(all) == 0 {
		return here("-i", "port %d of %s has no GID: give its network interface an address", o.IBPort, o.device)
	}
	o.gid, o.withGID = bestGID(all, o.IPv6), true
	return nil
}

// noGID returns the error of a GID that does not exist, with the list of those that do.
func (o *Options) noGID(dev *uverbs.Context, why error) error {
	all, err := dev.GIDs(o.IBPort)
	if err != nil || slices.ContainsFunc(all, func(g uverbs.GIDEntry) bool { return g.Index == o.GIDIndex }) {
		return &Error{Side: Here, Option: "-x", Err: why}
	}
	var present []string
	for _, g := range all {
		present = append(present, fmt.Sprintf("%d (%v, %v)", g.Index, g.GID.Addr().Unmap(), g.Type))
	}
	return here("-x", "port %d of %s has no GID of index %d; it has %s", o.IBPort, o.device, o.GIDIndex,
		strings.Join(present, ", "))
}

// bestGID prefers addresses of the selected family, then RoCE v2, then the first entry,
// as perftest does.
func bestGID(all []uverbs.GIDEntry, ipv6 bool) uverbs.GIDEntry {
	rank := func(g uverbs.GIDEntry) (r int) {
		if g.GID.Addr().Unmap().Is6() == ipv6 {
			r += 2
		}
		if g.Type == uverbs.GIDTypeRoCEv2 {
			r++
		}
		return r
	}
	return slices.MaxFunc(all, func(a, b uverbs.GIDEntry) int { return rank(a) - rank(b) })
}
