package devicetest

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/uverbs"
	"golang.org/x/sys/unix"
)

// TestDeviceParityDevice has the tests of tests/test_device.py.
func TestDeviceParityDevice(t *testing.T) {
	for name, run := range map[string]func(*testing.T, *uverbs.Context){
		"test_dev_list":     func(t *testing.T, _ *uverbs.Context) { theDevice(t) },
		"test_open_dev":     func(t *testing.T, dev *uverbs.Context) { check(t, must(theDevice(t).Open())(t).Close()) },
		"test_query_device": queryDevice,
		"test_query_pkey": func(t *testing.T, dev *uverbs.Context) {
			keys := must(dev.PKeys(1))(t)
			if rnic(dev) { // C does not query it
				if len(keys) != 0 {
					t.Errorf("P_Keys %#x", keys)
				}
			} else if len(keys) == 0 || keys[0] != firstPKey(t, dev) {
				t.Errorf("P_Keys %#x", keys)
			}
		},
		"test_get_pkey_index": func(t *testing.T, dev *uverbs.Context) {
			if rnic(dev) { // C does not query it
				if _, err := dev.PKeyIndex(1, 0xffff); !errors.Is(err, uverbs.ErrInvalid) {
					t.Errorf("the index of a P_Key: %v", err)
				}
			} else if i := must(dev.PKeyIndex(1, firstPKey(t, dev)))(t); i != 0 {
				t.Errorf("the first P_Key is at index %d", i)
			}
		},
		"test_query_gid":    queryGID,
		"test_query_gid_ex": queryGID,
		"test_query_gid_table": func(t *testing.T, dev *uverbs.Context) {
			for _, g := range must(dev.GIDs(1))(t) {
				if g.GID.IsZero() || g.Port != 1 || !roceOrIB(t, dev, g) {
					t.Errorf("entry %+v", g)
				}
			}
		},
		"test_query_gid_table_bad_flow": completeGIDs,
		"test_query_gid_ex_bad_flow":    emptyGID,
		"test_query_device_ex":          queryDevice,
		"test_phys_port_cnt_ex": func(t *testing.T, dev *uverbs.Context) {
			if a, d := must(dev.QueryDevice())(t), dev.Device(); a.PhysPortCnt != d.Ports || d.Ports < 1 {
				t.Errorf("%d ports by the device's attributes, %d by discovery", a.PhysPortCnt, d.Ports)
			}
		},
		"test_query_port": queryPort,
		"test_query_port_bad_flow": func(t *testing.T, dev *uverbs.Context) {
			for n := 1; n <= 10; n++ {
				if _, err := dev.QueryPort(dev.Device().Ports + n); !errors.Is(err, uverbs.ErrInvalid) ||
					!errors.Is(err, unix.EINVAL) {
					t.Errorf("a port that is not there: %v", err)
				}
			}
		},
		"test_create_dm":          createDM,
		"test_create_dm_bad_flow": createDMBad,
		"test_destroy_dm": func(t *testing.T, dev *uverbs.Context) {
			check(t, allocDM(t, dev, deviceMemory(t, dev)/2).Close())
		},
		"test_destroy_dm_bad_flow":    destroyDMTwice,
		"test_dm_write":               writeDM,
		"test_dm_write_bad_flow":      writeDMBad,
		"test_dm_read":                readDM,
		"test_multi_process_alloc_dm": allocDMInProcesses,
		"test_import_dm":              importDM,
	} {
		t.Run(name, func(t *testing.T) { run(t, openDevice(t)) })
	}
}

// rnic reports whether a device is one of iWARP.
func rnic(dev *uverbs.Context) bool { return dev.Device().NodeType == uverbs.NodeRNIC }

// kernelRings reports whether the rings of a device's queues are the kernel's memory.
func kernelRings(dev *uverbs.Context) bool {
	return strings.HasPrefix(dev.Name(), "rxe") || strings.HasPrefix(dev.Name(), "siw")
}

// theDevice returns the entry of Devices for the device under test.
func theDevice(t testing.TB) uverbs.Device {
	t.Helper()
	for _, d := range must(uverbs.Devices())(t) {
		if d.Name == deviceName(t) {
			return d
		}
	}
	t.Fatal("the list of devices does not have the one under test")
	return uverbs.Device{}
}

func queryDevice(t *testing.T, dev *uverbs.Context) {
	a := must(dev.QueryDevice())(t)
	page := uint64(os.Getpagesize())
	if a.NodeGUID == 0 || a.SysImageGUID == 0 || a.VendorID == 0 || a.MaxMRSize <= page || a.PageSizeCap < page {
		t.Errorf("attributes %+v", a)
	}
	for name, n := range map[string]int{"MaxQP": a.MaxQP, "MaxQPWR": a.MaxQPWR, "MaxSGE": a.MaxSGE, "MaxCQ": a.MaxCQ,
		"MaxCQE": a.MaxCQE, "MaxMR": a.MaxMR, "MaxPD": a.MaxPD, "MaxPKeys": a.MaxPKeys} {
		if n <= 0 && (name != "MaxPKeys" || !rnic(dev)) {
			t.Errorf("%s is %d", name, n)
		}
	}
}

// firstPKey returns the first P_Key of port 1, read from sysfs.
func firstPKey(t testing.TB, dev *uverbs.Context) uint16 {
	t.Helper()
	return uint16(must(strconv.ParseUint(sysfs(t, dev, "pkeys/0"), 0, 16))(t))
}

func queryGID(t *testing.T, dev *uverbs.Context) {
	g := must(dev.QueryGID(1, 0))(t)
	if !g.GID.Addr().IsLinkLocalUnicast() && !rnic(dev) || g.Port != 1 || g.Index != 0 || !roceOrIB(t, dev, *g) {
		t.Errorf("GID 0 is %+v", g)
	}
}

// roceOrIB reports whether a GID table entry is valid for the link layer of port 1.
func roceOrIB(t *testing.T, dev *uverbs.Context, g uverbs.GIDEntry) bool {
	t.Helper()
	if rnic(dev) { // the GID is the hardware address of the interface
		return g.Type == uverbs.GIDTypeIB && g.Netdev != ""
	}
	if must(dev.QueryPort(1))(t).LinkLayer == uverbs.LinkInfiniBand {
		return g.Type == uverbs.GIDTypeIB && g.Netdev == ""
	}
	return (g.Type == uverbs.GIDTypeRoCEv1 || g.Type == uverbs.GIDTypeRoCEv2) && g.Netdev != ""
}

// emptyGID checks the error of a query of an unused index.
func emptyGID(t *testing.T, dev *uverbs.Context) {
	used := map[int]bool{}
	for _, g := range must(dev.GIDs(1))(t) {
		used[g.Index] = true
	}
	empty := 0
	for used[empty] {
		empty++
	}
	want := unix.ENODATA
	if empty == must(dev.QueryPort(1))(t).GIDTableLen { // C skips the test
		want = unix.EINVAL
	}
	if _, err := dev.QueryGID(1, empty); !errors.Is(err, uverbs.ErrInvalid) || !errors.Is(err, want) {
		t.Errorf("GID %d: %v", empty, err)
	}
}

// completeGIDs checks the GID table against sysfs: it has every entry that is in
// use, and no others.
func completeGIDs(t *testing.T, dev *uverbs.Context) {
	listed := map[int]uverbs.GID{}
	for _, g := range must(dev.GIDs(1))(t) {
		listed[g.Index] = g.GID
	}
	room := must(dev.QueryPort(1))(t).GIDTableLen
	if len(listed) == 0 || len(listed) >= room && !rnic(dev) {
		t.Fatalf("%d of %d indexes are in use", len(listed), room)
	}
	for i := range room {
		want := strings.ReplaceAll(sysfs(t, dev, fmt.Sprintf("gids/%d", i)), ":", "")
		if got := string(must(listed[i].MarshalText())(t)); got != want {
			t.Errorf("GID %d is %s, the kernel has %s", i, got, want)
		}
	}
}

// sysfs returns the contents of a sysfs file of port 1.
func sysfs(t testing.TB, dev *uverbs.Context, file string) string {
	t.Helper()
	b := must(os.ReadFile("/sys/class/infiniband/" + dev.Name() + "/ports/1/" + file))(t)
	return strings.TrimSpace(string(b))
}

func queryPort(t *testing.T, dev *uverbs.Context) {
	a := must(dev.QueryPort(1))(t)
	width := map[uint8]bool{1: true, 2: true, 4: true, 8: true, 16: true}
	link := map[string]uverbs.LinkLayer{"Ethernet": uverbs.LinkEthernet,
		"InfiniBand": uverbs.LinkInfiniBand}[sysfs(t, dev, "link_layer")]
	if a.State.String() == "unknown" || a.MaxMTU.Bytes() == 0 || a.ActiveMTU.Bytes() == 0 || !width[a.ActiveWidth] ||
		a.ActiveSpeed == 0 || a.LinkLayer != link || a.MaxMsgSize <= 0x1000 {
		t.Errorf("attributes %+v", a)
	}
}
