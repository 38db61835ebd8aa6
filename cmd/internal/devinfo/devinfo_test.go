package devinfo

import (
	"encoding/json"
	"errors"
	"flag"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/goverbs/goverbs/uverbs"
	"github.com/goverbs/goverbs/uverbs/ether"
)

// rxe returns what Linux 6.12 reports for a soft-RoCE device.
// testdata/rxe-6.12.txt is the output of ibv_devinfo -v of rdma-core 56.1 for the
// same device.
func rxe() *deviceInfo {
	attr := &uverbs.DeviceAttr{
		FWVer: "0.0.0", NodeGUID: 0x58859afffe07e7d4, SysImageGUID: 0x58859afffe07e7d4, MaxMRSize: 1<<64 - 1,
		PageSizeCap: 0xfffff000, VendorID: 0xffffff, MaxQP: 1048560, MaxQPWR: 1048576, CapFlags: 0x1c001223c76,
		MaxSGE: 32, MaxSGERd: 32, MaxCQ: 1048576, MaxCQE: 32767, MaxMR: 524287, MaxPD: 1048576, MaxQPRdAtom: 128,
		MaxResRdAtom: 258048, MaxQPInitRdAtom: 128, AtomicCap: uverbs.AtomicHCA, MaxMW: 524287, MaxMcastGrp: 8192,
		MaxMcastQPAttach: 56, MaxTotalMcastQP: 458752, MaxAH: 32767, MaxSRQ: 917503, MaxSRQWR: 1048576, MaxSRQSGE: 27,
		MaxPKeys: 64, LocalCAAckDelay: 15, PhysPortCnt: 1,
	}
	port := &uverbs.PortAttr{State: uverbs.PortActive, MaxMTU: uverbs.MTU4096,
		ActiveMTU: uverbs.MTU1024, GIDTableLen: 1024,
		CapFlags: 0x10000, MaxMsgSize: 0x80000000, MaxVLNum: 1, PKeyTableLen: 1, ActiveWidth: 1, ActiveSpeed: 1, PhysState: 5,
		LinkLayer: uverbs.LinkEthernet}
	gid := func(i int, addr string) uverbs.GIDEntry {
		return uverbs.GIDEntry{GID: uverbs.GIDFromAddr(netip.MustParseAddr(addr)), Port: 1, Index: i,
			Type: uverbs.GIDTypeRoCEv2, IfIndex: 2, Netdev: "d0"}
	}
	return &deviceInfo{
		device: uverbs.Device{Name: "rxe0", NodeType: uverbs.NodeCA, Ports: 1, DriverID: 14, ABI: 2,
			Node: "/dev/infiniband/uverbs0"},
		attr: attr, ether: new(ether.DeviceAttr), vectors: 2,
		ports: []portInfo{{number: 1, attr: port, pkeys: []uint16{0xffff},
			gids: []uverbs.GIDEntry{gid(0, "fe80::5885:9aff:fe07:e7d4"), gid(1, "10.9.0.1")}}},
	}
}

// rich returns a device that has all attributes. testdata/rich.txt and brief.txt
// are the output of ibv_devinfo, with and without -v, linked with a libibverbs
// that returns these values, and 0 for what no device has.
func rich() *deviceInfo {
	d := rxe()
	d.device.Name, d.boardID = "mlx5_0", "MT_0000000359"
	d.attr.PhysPortCnt = 2
	a, e := d.attr, d.ether
	a.FWVer, a.VendorID, a.VendorPartID, a.HWVer = "22.41.1000", 0x2c9, 4125, 0x1a
	a.CapFlags = 1<<0 | 1<<20 | 1<<30 | 1<<34 | 1<<36
	a.AtomicCap, a.MaxSRQ = 7, 0
	a.ODP = uverbs.ODPCaps{General: 7, RC: 0x1f, UC: 1 << 5, UD: 1 << 9}
	a.TimestampMask, a.HCACoreClock, e.RawPacketCaps = 1<<63-1, 1000000, 0x1f
	e.RSS = ether.RSSCaps{SupportedQPTs: 1<<8 | 1<<4 | 1<<2, MaxRWQIndirectionTables: 5, MaxRWQIndirectionTableSize: 6}
	e.RSS.Functions, e.RSS.Fields = ether.RSSToeplitz, 0x800000FF
	e.TSO = ether.TSOCaps{MaxSize: 65536, SupportedQPTs: 1<<8 | 1<<4}
	a.PacketPacing = uverbs.PacketPacingCaps{MinRate: 1, MaxRate: 100000000, SupportedQPTs: 1<<8 | 1<<2}
	a.TagMatching = uverbs.TMCaps{MaxRndvHdrSize: 16, MaxNumTags: 127, Flags: 1, MaxOps: 64, MaxSGE: 1}
	a.MaxModerateCount, a.MaxModeratePeriod, a.MaxDMSize, e.MaxWQTypeRQ =
		65535, 4095*time.Microsecond, 131072, 8388608
	p := d.ports[0].attr
	p.State, p.ActiveMTU, p.MaxVLNum, p.ActiveWidth, p.ActiveSpeed, p.PhysState = 5, 9, 9, 9, 9, 9
	d.ports[0].gids[0].Type = uverbs.GIDTypeRoCEv1
	d.ports[0].gids[1].GID = uverbs.GID{0xfe, 0x80} // no interface ID: not shown
	ib := *p
	ib.LinkLayer, ib.LID, ib.SMLID, ib.LMC = uverbs.LinkInfiniBand, 26, 1, 7
	ib.State, ib.ActiveMTU, ib.MaxVLNum, ib.ActiveWidth, ib.ActiveSpeed, ib.PhysState =
		uverbs.PortDown, uverbs.MTU4096, 5, 2, 256, 2
	d.ports = append(d.ports, portInfo{number: 2, attr: &ib, gids: []uverbs.GIDEntry{
		{GID: uverbs.GID{0: 0xfe, 1: 0x80, 8: 0x98, 9: 3, 15: 1}, Port: 2, Type: uverbs.GIDTypeIB}}})
	return d
}

func TestText(t *testing.T) {
	for _, c := range []struct {
		file    string
		device  *deviceInfo
		verbose bool
	}{
		{"rxe-6.12.txt", rxe(), true},
		{"rich.txt", rich(), true},
		{"brief.txt", rich(), false},
	} {
		want, err := os.ReadFile(filepath.Join("testdata", c.file))
		if err != nil {
			t.Fatal(err)
		}
		var got strings.Builder
		printDevice(&got, c.device, c.verbose)
		if d := cmp.Diff(string(want), got.String()); d != "" {
			t.Errorf("%s: (-want +got)\n%s", c.file, d)
		}
	}
}

func TestList(t *testing.T) {
	var b strings.Builder
	printList(&b, nil)
	printList(&b, []uverbs.Device{{Name: "rxe0"}})
	printList(&b, []uverbs.Device{{Name: "a"}, {Name: "b"}})
	const want = "0 HCAs found:\n\n1 HCA found:\n\trxe0\n\n2 HCAs found:\n\ta\n\tb\n\n"
	if b.String() != want {
		t.Errorf("got %q, want %q", b.String(), want)
	}
}

// TestJSON checks that the document contains every attribute of the library.
func TestJSON(t *testing.T) {
	var b strings.Builder
	if err := printJSON(&b, []*deviceInfo{rxe()}); err != nil {
		t.Fatal(err)
	}
	var docs []map[string]any
	if err := json.Unmarshal([]byte(b.String()), &docs); err != nil {
		t.Fatal(err)
	}
	port := docs[0]["Ports"].([]any)[0].(map[string]any)
	for _, c := range []struct {
		in map[string]any
		of any
	}{{docs[0], uverbs.DeviceAttr{}}, {docs[0], ether.DeviceAttr{}}, {port, uverbs.PortAttr{}}} {
		for _, f := range reflect.VisibleFields(reflect.TypeOf(c.of)) {
			if _, ok := c.in[f.Name]; !ok {
				t.Errorf("%T.%s is not in the document", c.of, f.Name)
			}
		}
	}
	for _, c := range []struct {
		in   map[string]any
		key  string
		want any
	}{
		{docs[0], "Name", "rxe0"}, {docs[0], "Driver", "rxe"}, {docs[0], "Transport", "InfiniBand"},
		{docs[0], "NodeGUID", "5885:9aff:fe07:e7d4"}, {docs[0], "AtomicCap", "ATOMIC_HCA"},
		{port, "State", "active"}, {port, "LinkLayer", "Ethernet"}, {port, "ActiveMTU", 1024.0},
		{port, "PKeys", []any{"0xffff"}},
		{port, "GIDs", []any{
			map[string]any{"Index": 0.0, "GID": "fe80::5885:9aff:fe07:e7d4", "Type": "RoCE v2", "Netdev": "d0"},
			map[string]any{"Index": 1.0, "GID": "::ffff:10.9.0.1", "Type": "RoCE v2", "Netdev": "d0"}}},
	} {
		if d := cmp.Diff(c.want, c.in[c.key]); d != "" {
			t.Errorf("%s: (-want +got)\n%s", c.key, d)
		}
	}
}

func TestJSONOfNothing(t *testing.T) {
	var b strings.Builder
	if err := printJSON(&b, nil); err != nil || b.String() != "[]\n" {
		t.Errorf("got %q, %v", b.String(), err)
	}
}

func TestOptions(t *testing.T) {
	for _, c := range []struct {
		args string
		want options
	}{
		{"", options{}},
		{"-v", options{verbose: true}},
		{"-vv", options{verbose: true}},
		{"-lv", options{list: true, verbose: true}},
		{"--version", options{version: true}},
		{"-d rxe0 -i 2", options{device: "rxe0", port: 2}},
		{"-vdrxe0 -i2", options{device: "rxe0", port: 2, verbose: true}},
		{"-vd rxe0", options{device: "rxe0", verbose: true}},
		{"--ib-dev=rxe0 --ib-port 0x2 --list --verbose", options{device: "rxe0", port: 2, list: true, verbose: true}},
		{"-d=rxe0 -json", options{device: "rxe0", json: true}},
		{"--json", options{json: true}},
	} {
		got, err := parseOptions(strings.Fields(c.args), nil)
		if err != nil || *got != c.want {
			t.Errorf("%q: got %+v, %v", c.args, got, err)
		}
	}
	for _, args := range []string{"-i 0", "-i -1", "-i 256", "-i x", "-x", "rxe0", "-d", "-- x"} {
		if _, err := parseOptions(strings.Fields(args), nil); err == nil {
			t.Errorf("%q was accepted", args)
		}
	}
	var b strings.Builder
	if _, err := parseOptions([]string{"-h"}, &b); !errors.Is(err, flag.ErrHelp) || b.String() != usageText {
		t.Errorf("-h: %v, %q", err, b.String())
	}
}
