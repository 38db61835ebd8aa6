package uverbs

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"testing"

	"github.com/goverbs/goverbs/internal/machine"
	"github.com/goverbs/goverbs/internal/nldev"
	"github.com/goverbs/goverbs/internal/uapi"
	"golang.org/x/sys/unix"
)

// loopback is the index of lo in every network namespace.
const loopback = 1

// manyGIDs returns a rig whose port has n GIDs of lo, from 192.0.2.0 on.
func manyGIDs(t testing.TB, n int) *rig {
	t.Helper()
	r := newRig(t)
	r.k.Set(func() {
		r.k.Ports[0].GidTblLen, r.k.GIDs = 256, nil
		for i := range n {
			r.k.GIDs = append(r.k.GIDs, uapi.IbUverbsGidEntry{Gid: GIDFromAddr(netip.AddrFrom4([4]byte{192, 0, 2, byte(i)})),
				GidIndex: uint32(i), PortNum: 1, GidType: uint32(GIDTypeRoCEv2), NetdevIfindex: loopback})
		}
	})
	return r
}

// countLookups records the lookups of network interfaces during the test.
func countLookups(t testing.TB) *[][]int {
	t.Helper()
	var calls [][]int
	netdevNames = func(_ machine.Machine, indexes []int) (map[int]string, error) {
		calls = append(calls, indexes)
		return nldev.NetdevNames(indexes)
	}
	t.Cleanup(func() { netdevNames = machine.InterfaceNames })
	return &calls
}

// TestGIDCost checks that a reply to a datagram and the first Connect of a QP issue the same
// commands with one GID and with 200.
func TestGIDCost(t *testing.T) {
	lookups := countLookups(t)
	var connects []string
	for _, n := range []int{1, 200} {
		r := manyGIDs(t, n)
		wc, grh := &WC{Flags: WCGRH}, header4(0, "192.0.2.201", fmt.Sprintf("192.0.2.%d", n-1))
		issued := func(f func()) []string {
			before := len(r.k.Log())
			f()
			return r.k.Log()[before:]
		}
		first := issued(func() { good(r.c.AHAttrFromWC(1, wc, grh))(t) })
		if want := []string{"DEVICE.QUERY_PORT", "DEVICE.QUERY_GID_TABLE"}; !slices.Equal(first, want) {
			t.Errorf("%d GIDs: the first reply issues %v, want %v", n, first, want)
		}
		next := issued(func() {
			if a := good(r.c.AHAttrFromWC(1, wc, grh))(t); int(a.SGIDIndex) != n-1 {
				t.Errorf("%d GIDs: a reply is sent from GID %d", n, a.SGIDIndex)
			}
		})
		if want := []string{"DEVICE.QUERY_GID_ENTRY"}; !slices.Equal(next, want) {
			t.Errorf("%d GIDs: the next reply issues %v, want %v", n, next, want)
		}
		if len(*lookups) != 0 {
			t.Errorf("%d GIDs: replies look interfaces up: %v", n, *lookups)
		}
		pd := good(r.c.AllocPD())(t)
		cq := good(r.c.CreateCQ(CQConfig{Entries: 1}))(t)
		qp := good(pd.CreateQP(QPConfig{Type: RC, SendCQ: cq, MaxSendWR: 1}))(t)
		remote := Endpoint{QPN: 1, MTU: MTU1024, GID: gid("192.0.2.201")}
		connect := issued(func() { check(t, qp.Connect(remote)) })
		if connects == nil {
			connects = connect
		} else if !slices.Equal(connect, connects) {
			t.Errorf("Connect with %d GIDs issues %v, with one %v", n, connect, connects)
		}
		if len(*lookups) != 1 || !slices.Equal((*lookups)[0], []int{loopback}) {
			t.Errorf("Connect with %d GIDs looks interfaces up: %v, want lo once", n, *lookups)
		}
		*lookups = nil
	}
}

// TestAHAttrFromWCAfterGIDChange checks that a remembered index of a GID is not used after the
// table has changed.
func TestAHAttrFromWCAfterGIDChange(t *testing.T) {
	r := manyGIDs(t, 4)
	wc, grh := &WC{Flags: WCGRH}, header4(0, "192.0.2.201", "192.0.2.3")
	index := func(want int) {
		t.Helper()
		if a := good(r.c.AHAttrFromWC(1, wc, grh))(t); int(a.SGIDIndex) != want {
			t.Errorf("the reply is sent from GID %d, want %d", a.SGIDIndex, want)
		}
	}
	index(3)
	r.k.Set(func() { r.k.GIDs[1].Gid, r.k.GIDs[3].Gid = r.k.GIDs[3].Gid, r.k.GIDs[1].Gid }) // swap
	index(1)
	r.k.Set(func() { r.k.GIDs[1].GidIndex = 9 }) // its entry becomes empty
	index(9)
	r.k.Set(func() { r.k.GIDs[1].GidType = uint32(GIDTypeRoCEv1) }) // the entry changes to another protocol
	if _, err := r.c.AHAttrFromWC(1, wc, grh); !errors.Is(err, ErrInvalid) {
		t.Errorf("without the GID: %v", err)
	}
	r.k.Set(func() { r.k.GIDs[1].GidType = uint32(GIDTypeRoCEv2) })
	index(9)
}

func TestGIDHintsAreBounded(t *testing.T) {
	var h gidHints
	for i := range 3 * maxGIDHints {
		h.remember(gidKey{gid: GID{byte(i), byte(i >> 8)}}, 1)
	}
	if n := len(h.index); n > maxGIDHints {
		t.Errorf("%d hints", n)
	}
}

// TestAHKey checks that datagrams whose replies need the same address vector have the same key, and
// others have different keys.
func TestAHKey(t *testing.T) {
	wc := &WC{Flags: WCGRH, SLID: 7, SL: 2, PathBits: 1, SrcQP: 5, WRID: 6}
	key := func(wc WC, grh []byte) AHKey { return good(wc.AHKey(grh))(t) }
	base := key(*wc, header4(0, "192.0.2.9", "192.0.2.1"))
	if again := key(WC{Flags: WCGRH | WCWithImm, SLID: 7, SL: 2, PathBits: 1, SrcQP: 8},
		header4(0x66, "192.0.2.9", "192.0.2.1")); again != base {
		t.Errorf("another datagram of the same sender: %+v, want %+v", again, base)
	}
	for name, other := range map[string]AHKey{
		"another sender": key(*wc, header4(0, "192.0.2.8", "192.0.2.1")),
		"to another GID": key(*wc, header4(0, "192.0.2.9", "192.0.2.2")),
		"another SL":     key(WC{Flags: WCGRH, SLID: 7, SL: 3, PathBits: 1}, header4(0, "192.0.2.9", "192.0.2.1")),
		"without GRH":    key(WC{SLID: 7, SL: 2, PathBits: 1}, nil),
	} {
		if other == base {
			t.Errorf("%s: the same key", name)
		}
	}
	if v1, v2 := key(*wc, header6(nextBTH, "fe80::9", "fe80::1")),
		key(*wc, header6(nextUDP, "fe80::9", "fe80::1")); v1 == v2 {
		t.Error("RoCE v1 and v2: the same key")
	}
	grh := header4(0, "192.0.2.9", "192.0.2.1")
	if n := testing.AllocsPerRun(100, func() { good(wc.AHKey(grh))(t) }); n != 0 {
		t.Errorf("AHKey allocates %v times", n)
	}
	if _, err := (&WC{Status: WCWRFlushErr}).AHKey(grh); !errors.Is(err, ErrInvalid) {
		t.Errorf("of a failed receive: %v", err)
	}
}

// TestNetdevsUnreadable checks that unreadable interface names are reported as an error, not as
// interfaces of another namespace.
func TestNetdevsUnreadable(t *testing.T) {
	r := manyGIDs(t, 2)
	for _, errno := range []unix.Errno{unix.EMFILE, unix.EAFNOSUPPORT} {
		netdevNames = func(machine.Machine, []int) (map[int]string, error) { return nil, os.NewSyscallError("socket", errno) }
		t.Cleanup(func() { netdevNames = machine.InterfaceNames })
		for name, err := range map[string]error{"GIDs": second(r.c.GIDs(1)), "QueryGID": second(r.c.QueryGID(1, 1)),
			"SelectGID": second(r.c.SelectGID(1, netip.Addr{}))} {
			if !errors.Is(err, errno) {
				t.Errorf("%s: %v, want %v", name, err, errno)
			}
		}
	}
}

// TestSelectGIDWithoutNetlink checks that SelectGID works in a sandbox that forbids netlink, as
// systemd's RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX does. The test runs in a separate
// process.
func TestSelectGIDWithoutNetlink(t *testing.T) {
	if os.Getenv(sandboxed) == "" {
		again := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run=^TestSelectGIDWithoutNetlink$")
		again.Env = append(os.Environ(), sandboxed+"=1")
		if out, err := again.CombinedOutput(); err != nil {
			t.Errorf("in a sandbox: %v\n%s", err, out)
		}
		return
	}
	r := manyGIDs(t, 1)
	forbidFamily(t, unix.AF_NETLINK)
	if fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW, 0); err == nil {
		t.Fatal("netlink is not forbidden", fd)
	}
	g := good(r.c.SelectGID(1, netip.Addr{}))(t)
	if g.Netdev != "lo" {
		t.Errorf("the GID is of %q, want lo", g.Netdev)
	}
}
