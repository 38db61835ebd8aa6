package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/goverbs/goverbs/testbed/connectx"
)

// options are the command line.
type options struct {
	sockets, nics        []string
	device               connectx.Config // of each device
	link                 connectx.LinkLayer
	capabilities         []string
	trace, pcap, control string
	seed                 uint64
	strict               bool
}

func parse(args []string, stderr io.Writer) (*options, error) {
	o := &options{}
	f := flag.NewFlagSet("connectx", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.Func("socket", "vfio-user `socket` of a device (repeatable)", list(&o.sockets))
	f.Func("link", "link layer: `ib` or roce (default ib)", o.setLink)
	f.Func("nic", "`socket` of a port of the switch for QEMU's -netdev stream (roce; repeatable)", list(&o.nics))
	f.Func("pci-id", "PCI device `number` (default 0x1017, a ConnectX-5)", func(s string) error {
		n, err := strconv.ParseUint(s, 0, 16)
		o.device.PCIDevice = uint16(n)
		return err
	})
	f.Func("firmware", "`version` of the firmware, as 16.35.1234", o.setFirmware)
	f.Func("guid", "GUID of the first device, as a `number`; the others count up", func(s string) error {
		n, err := strconv.ParseUint(s, 0, 64)
		o.device.GUID = n
		return err
	})
	f.Func("cap", "change the value of a capability, as `name=number` (repeatable)", list(&o.capabilities))
	f.BoolVar(&o.device.NoISSI, "no-issi", false, "firmware without interface versions (ISSI)")
	f.BoolVar(&o.device.StaleSRQN, "stale-srqn", false,
		"completions of send requests name an SRQ (with -cap cqe_version=0)")
	f.Func("shuffle-rq", "use receives of a QP out of order, in lots of this `number`", number(&o.device.ShuffleRQ))
	f.Func("shuffle-srq", "use receives of an SRQ out of order, in lots of this `number`", number(&o.device.ShuffleSRQ))
	f.Func("reorder", "send packets of out-of-order QPs in lots of this `number`, the last first (default 4; 1: in order)",
		number(&o.device.Reorder))
	f.BoolVar(&o.device.ODP, "odp", false, "memory on demand: memory keys with page faults")
	f.Func("ece", "ECE options, as a `number` (default 0x30000002)", number32(&o.device.ECE))
	f.Func("first-uar", "`number` of the first UAR page (default 16); BAR 0 grows with it", number32(&o.device.FirstUAR))
	f.StringVar(&o.trace, "trace", "", "write a trace of the devices to this `file`")
	f.StringVar(&o.pcap, "pcap", "", "write the switch's frames to this `file` (roce)")
	f.StringVar(&o.control, "control", "", "`socket` for requests to inject faults (package control)")
	f.Uint64Var(&o.seed, "seed", 1, "seed of the network's random faults")
	f.BoolVar(&o.strict, "strict", true, "check the rules that hardware breaks silently")
	if err := f.Parse(args); err != nil {
		return nil, err
	}
	if len(o.sockets) == 0 || f.NArg() > 0 {
		f.Usage()
		return nil, errors.New("want at least one -socket, and no other arguments")
	}
	if (len(o.nics) > 0 || o.pcap != "") && o.link != connectx.Ethernet {
		return nil, errors.New("-nic and -pcap need -link roce: InfiniBand has no frames")
	}
	o.device.Lenient = !o.strict
	return o, o.setCapabilities()
}

// adapt sets the configuration of the i-th device.
func (o *options) adapt(i int, c *connectx.Config) {
	c.PCIDevice, c.Firmware, c.Capabilities, c.Lenient = o.device.PCIDevice, o.device.Firmware, o.device.Capabilities,
		o.device.Lenient
	c.NoISSI = o.device.NoISSI
	c.ODP = o.device.ODP
	c.ECE, c.FirstUAR = o.device.ECE, o.device.FirstUAR
	c.Reorder = o.device.Reorder
	c.StaleSRQN, c.ShuffleRQ, c.ShuffleSRQ = o.device.StaleSRQN, o.device.ShuffleRQ, o.device.ShuffleSRQ
	if o.device.GUID != 0 {
		c.GUID = o.device.GUID + uint64(i)
	}
}

// list returns the function of a flag that may be repeated.
func list(to *[]string) func(string) error {
	return func(s string) error {
		*to = append(*to, s)
		return nil
	}
}

// number returns a flag for a number of receive requests or packets.
func number(to *int) func(string) error {
	return func(s string) error {
		n, err := strconv.ParseUint(s, 0, 15)
		*to = int(n)
		return err
	}
}

// number32 returns a flag for a number of 32 bits.
func number32(to *uint32) func(string) error {
	return func(s string) error {
		n, err := strconv.ParseUint(s, 0, 32)
		*to = uint32(n)
		return err
	}
}

func (o *options) setLink(s string) error {
	switch s {
	case "ib":
		o.link = connectx.InfiniBand
	case "roce":
		o.link = connectx.Ethernet
	default:
		return errors.New("want ib or roce")
	}
	return nil
}

func (o *options) setFirmware(s string) error {
	parts := strings.Split(s, ".")
	if len(parts) != len(o.device.Firmware) {
		return errors.New("want three numbers")
	}
	for i, p := range parts {
		n, err := strconv.ParseUint(p, 10, 16)
		if err != nil {
			return err
		}
		o.device.Firmware[i] = uint16(n)
	}
	return nil
}

// setCapabilities finds the capabilities by their names in package prm.
func (o *options) setCapabilities() error {
	offered := connectx.Offered(o.link)
	for _, s := range o.capabilities {
		name, value, _ := strings.Cut(s, "=")
		n, err := strconv.ParseUint(value, 0, 64)
		if err != nil {
			return fmt.Errorf("-cap %s: want name=number: %w", s, err)
		}
		i := slices.IndexFunc(offered, func(c connectx.Capability) bool { return c.Field.Name == name })
		if i < 0 {
			return fmt.Errorf("-cap %s: the device has no such capability; it has %s", s, names(offered))
		}
		c := offered[i]
		c.Value = n
		o.device.Capabilities = append(o.device.Capabilities, c)
	}
	return nil
}

func names(capabilities []connectx.Capability) string {
	var all []string
	for _, c := range capabilities {
		all = append(all, c.Field.Name)
	}
	return strings.Join(all, " ")
}
