package nldev

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/uapi"
)

var rxeDriver = order.AppendUint32(nil, uapi.RDMA_DRIVER_RXE)

func wantDevice(index uint32, name string, char *CharDev) Device {
	return Device{
		Index: index, Name: name, NodeGUID: 0x505400fffe123456, NodeType: uapi.RDMA_NODE_IB_CA,
		Ports: 1, FWVersion: "20.31.1014", Char: char,
	}
}

func TestListDevices(t *testing.T) {
	c := fakeClient(t, func(r request) [][]byte {
		switch r.op {
		case uapi.RDMA_NLDEV_CMD_GET:
			if r.flags != unix.NLM_F_REQUEST|unix.NLM_F_DUMP {
				t.Errorf("dump with flags %#x", r.flags)
			}
			// Two messages in one datagram, one in the next, then the end of the dump.
			return [][]byte{
				cat(reply(r, unix.NLM_F_MULTI, deviceAttrs(3, "rxe_b")), reply(r, unix.NLM_F_MULTI, deviceAttrs(0, "rxe_a"))),
				reply(r, unix.NLM_F_MULTI, deviceAttrs(5, "noverbs")),
				done(r),
			}
		case uapi.RDMA_NLDEV_CMD_GET_CHARDEV:
			if got := text(r.attrs[uapi.RDMA_NLDEV_ATTR_CHARDEV_TYPE]); got != "uverbs" {
				t.Errorf("node of type %q asked", got)
			}
			switch order.Uint32(r.attrs[uapi.RDMA_NLDEV_ATTR_DEV_INDEX]) {
			case 0: // 4 bytes, as kernels send it
				return [][]byte{cat(reply(r, 0, nodeAttrs("uverbs0", rxeDriver)), ack(r, 0))}
			case 3: // 8 bytes, as the header declares it
				return [][]byte{reply(r, 0, nodeAttrs("uverbs1", order.AppendUint64(nil, uapi.RDMA_DRIVER_MLX5))), ack(r, 0)}
			}
		}
		return [][]byte{ack(r, unix.EOPNOTSUPP)}
	})
	got, err := c.devices()
	if err != nil {
		t.Fatal(err)
	}
	want := []Device{
		wantDevice(0, "rxe_a", &CharDev{Name: "uverbs0", ABI: 2, Major: 231, Minor: 193, DriverID: uapi.RDMA_DRIVER_RXE}),
		wantDevice(3, "rxe_b", &CharDev{Name: "uverbs1", ABI: 2, Major: 231, Minor: 193, DriverID: uapi.RDMA_DRIVER_MLX5}),
		wantDevice(5, "noverbs", nil),
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("devices (-want +got):\n%s", d)
	}
}

// TestGoneDevice: a device that is removed after the list was read is omitted.
func TestGoneDevice(t *testing.T) {
	for _, errno := range []unix.Errno{unix.ENODEV, unix.EINVAL} {
		c := fakeClient(t, func(r request) [][]byte {
			if r.op == uapi.RDMA_NLDEV_CMD_GET {
				return [][]byte{reply(r, unix.NLM_F_MULTI, deviceAttrs(1, "rxe_gone")), done(r)}
			}
			return [][]byte{ack(r, errno)}
		})
		c.sys = machine(t)
		if got, err := c.devices(); err != nil || len(got) != 0 {
			t.Errorf("%v: devices = %v, %v; want none", errno, got, err)
		}
	}
}

// TestInterruptedDump: the kernel marks a dump during which the list changed.
func TestInterruptedDump(t *testing.T) {
	for _, c := range []struct {
		name     string
		interrup int
		ok       bool
	}{{"once", 1, true}, {"always", 1 << 20, false}} {
		t.Run(c.name, func(t *testing.T) {
			dumps := 0
			cl := fakeClient(t, func(r request) [][]byte {
				if r.op != uapi.RDMA_NLDEV_CMD_GET {
					return [][]byte{ack(r, unix.ENOENT)}
				}
				dumps++
				flags := uint16(unix.NLM_F_MULTI)
				if dumps <= c.interrup {
					flags |= unix.NLM_F_DUMP_INTR
				}
				return [][]byte{reply(r, flags, deviceAttrs(1, "rxe0")), done(r)}
			})
			got, err := cl.devices()
			if c.ok && (err != nil || len(got) != 1) {
				t.Errorf("devices = %v, %v; want one, once", got, err)
			}
			if !c.ok && (!errors.Is(err, errInterrupted) || dumps != maxRetries) {
				t.Errorf("error %v after %d dumps", err, dumps)
			}
		})
	}
}

func TestClientCharDev(t *testing.T) {
	c := fakeClient(t, func(r request) [][]byte {
		if _, ok := r.attrs[uapi.RDMA_NLDEV_ATTR_DEV_INDEX]; ok {
			t.Error("a client without device was asked with an index")
		}
		if text(r.attrs[uapi.RDMA_NLDEV_ATTR_CHARDEV_TYPE]) != "rdma_cm" {
			return [][]byte{ack(r, unix.EOPNOTSUPP)}
		}
		b := appendU64(nil, uapi.RDMA_NLDEV_ATTR_CHARDEV, 0xa7e)
		b = appendU64(b, uapi.RDMA_NLDEV_ATTR_CHARDEV_ABI, 4)
		return [][]byte{reply(r, 0, appendString(b, uapi.RDMA_NLDEV_ATTR_CHARDEV_NAME, "rdma_cm")), ack(r, 0)}
	})
	got, err := c.clientCharDev("rdma_cm")
	if want := (CharDev{Name: "rdma_cm", ABI: 4, Major: 10, Minor: 126}); err != nil || got != want {
		t.Errorf("rdma_cm = %+v, %v; want %+v", got, err, want)
	}
	_, err = c.clientCharDev("umad")
	if !errors.Is(err, unix.EOPNOTSUPP) || !strings.Contains(err.Error(), "modprobe ib_umad") {
		t.Errorf("umad: %v", err)
	}
}

func TestAddLink(t *testing.T) {
	for _, c := range []struct {
		errno unix.Errno
		hint  string
	}{
		{0, ""},
		{unix.EEXIST, "netdev eth0 has an RDMA device already"},
		{unix.ENFILE, "the name rxe0 is taken"},
		{unix.ENODEV, "no netdev eth0"},
		{unix.EPERM, "CAP_NET_ADMIN"},
		{unix.EINVAL, "modprobe rdma_rxe"},
		{unix.ENOENT, "modprobe crc32_generic"},
	} {
		cl := fakeClient(t, func(r request) [][]byte {
			got := []string{
				text(r.attrs[uapi.RDMA_NLDEV_ATTR_DEV_NAME]), text(r.attrs[uapi.RDMA_NLDEV_ATTR_LINK_TYPE]),
				text(r.attrs[uapi.RDMA_NLDEV_ATTR_NDEV_NAME]),
			}
			if d := cmp.Diff([]string{"rxe0", "rxe", "eth0"}, got); d != "" || r.op != uapi.RDMA_NLDEV_CMD_NEWLINK {
				t.Errorf("op %d: %s", r.op, d)
			}
			return [][]byte{ack(r, c.errno)}
		})
		err := cl.addLink("rxe0", "rxe", "eth0")
		if c.errno == 0 {
			if err != nil {
				t.Error(err)
			}
			continue
		}
		var e *Error
		if !errors.As(err, &e) || !errors.Is(err, c.errno) || !strings.Contains(err.Error(), c.hint) {
			t.Errorf("%v: error %v", c.errno, err)
		}
	}
}

func TestDeleteLink(t *testing.T) {
	deleted := -1
	c := fakeClient(t, func(r request) [][]byte {
		if r.op == uapi.RDMA_NLDEV_CMD_GET {
			return [][]byte{reply(r, unix.NLM_F_MULTI, deviceAttrs(7, "rxe0")), done(r)}
		}
		deleted = int(order.Uint32(r.attrs[uapi.RDMA_NLDEV_ATTR_DEV_INDEX]))
		return [][]byte{ack(r, 0)}
	})
	if err := c.deleteLink("rxe0"); err != nil || deleted != 7 {
		t.Errorf("deleteLink: %v, index %d", err, deleted)
	}
	if err := c.deleteLink("rxe1"); !errors.Is(err, unix.ENODEV) {
		t.Errorf("deleteLink of an unknown device: %v", err)
	}
}

func TestResources(t *testing.T) {
	c := fakeClient(t, func(r request) [][]byte {
		if r.op == uapi.RDMA_NLDEV_CMD_GET {
			return [][]byte{reply(r, unix.NLM_F_MULTI, deviceAttrs(1, "rxe0")), done(r)}
		}
		var table []byte
		for i, n := range []string{"pd", "cq", "qp"} {
			e := appendString(nil, uapi.RDMA_NLDEV_ATTR_RES_SUMMARY_ENTRY_NAME, n)
			e = appendAttr(e, uapi.RDMA_NLDEV_ATTR_PAD, nil)
			e = appendU64(e, uapi.RDMA_NLDEV_ATTR_RES_SUMMARY_ENTRY_CURR, uint64(i+1))
			table = appendAttr(table, uapi.RDMA_NLDEV_ATTR_RES_SUMMARY_ENTRY|0x8000, e) // NLA_F_NESTED
		}
		b := appendU32(nil, uapi.RDMA_NLDEV_ATTR_DEV_INDEX, 1)
		return [][]byte{reply(r, 0, appendAttr(b, uapi.RDMA_NLDEV_ATTR_RES_SUMMARY, table)), ack(r, 0)}
	})
	got, err := c.resources("rxe0")
	if d := cmp.Diff(map[string]uint64{"pd": 1, "cq": 2, "qp": 3}, got); err != nil || d != "" {
		t.Errorf("resources: %v\n%s", err, d)
	}
}

// qpEntry encodes a QP of a list as the kernel does. User QPs have further attributes.
func qpEntry(port uint32, kind, state byte) []byte {
	e := appendU32(nil, uapi.RDMA_NLDEV_ATTR_PORT_INDEX, port)
	e = appendU32(e, uapi.RDMA_NLDEV_ATTR_RES_LQPN, 1)
	e = appendAttr(e, uapi.RDMA_NLDEV_ATTR_RES_TYPE, []byte{kind})
	e = appendAttr(e, uapi.RDMA_NLDEV_ATTR_RES_STATE, []byte{state})
	return appendAttr(nil, uapi.RDMA_NLDEV_ATTR_RES_QP_ENTRY|0x8000, e)
}

func TestFailedGSI(t *testing.T) {
	const rc, rts = 2, 3
	interrupted := uint16(unix.NLM_F_DUMP_INTR)
	c := fakeClient(t, func(r request) [][]byte {
		if r.op == uapi.RDMA_NLDEV_CMD_GET {
			return [][]byte{reply(r, unix.NLM_F_MULTI, deviceAttrs(1, "rxe0")), done(r)}
		}
		if r.op != uapi.RDMA_NLDEV_CMD_RES_QP_GET || order.Uint32(r.attrs[uapi.RDMA_NLDEV_ATTR_DEV_INDEX]) != 1 {
			t.Errorf("request %+v", r)
		}
		list := func(flags uint16, qps ...[]byte) []byte {
			b := appendU32(nil, uapi.RDMA_NLDEV_ATTR_DEV_INDEX, 1)
			return reply(r, unix.NLM_F_MULTI|flags, appendAttr(b, uapi.RDMA_NLDEV_ATTR_RES_QP|0x8000, cat(qps...)))
		}
		out := [][]byte{list(interrupted, qpEntry(3, qpTypeGSI, qpStateErr), qpEntry(1, rc, qpStateErr)),
			list(0, qpEntry(2, qpTypeGSI, rts), qpEntry(1, qpTypeGSI, qpStateErr), qpEntry(1, qpTypeGSI, qpStateErr)), done(r)}
		interrupted = 0
		return out
	})
	got, err := c.failedGSI("rxe0")
	if d := cmp.Diff([]uint32{1, 3}, got); err != nil || d != "" {
		t.Errorf("%v\n%s", err, d)
	}
	if _, err := c.failedGSI("none"); !errors.Is(err, unix.ENODEV) {
		t.Errorf("an unknown device: %v", err)
	}
}

func TestSystem(t *testing.T) {
	c := fakeClient(t, func(r request) [][]byte {
		b := appendAttr(nil, uapi.RDMA_NLDEV_SYS_ATTR_NETNS_MODE, []byte{1})
		return [][]byte{reply(r, 0, b), ack(r, 0)} // a kernel without COPY_ON_FORK
	})
	if v, err := c.system(uapi.RDMA_NLDEV_SYS_ATTR_NETNS_MODE); v != 1 || err != nil {
		t.Errorf("netns mode %d, %v", v, err)
	}
	if v, err := c.system(uapi.RDMA_NLDEV_SYS_ATTR_COPY_ON_FORK); v != 0 || err != nil {
		t.Errorf("copy on fork %d, %v", v, err)
	}
}

// TestExtendedAck: the error has the kernel's text, whether or not the request is repeated before
// it.
func TestExtendedAck(t *testing.T) {
	for _, repeat := range []bool{false, true} {
		c := fakeClient(t, func(r request) [][]byte {
			b := order.AppendUint32(nil, uint32(0xffffffff-uint32(unix.EINVAL)+1))
			flags := uint16(capped | ackTLVs)
			if repeat {
				flags = ackTLVs
				b = append(b, appendRequest(messageType(r.op), r.flags, r.seq, make([]byte, 8))...)
			} else {
				b = append(b, make([]byte, headerLen)...)
			}
			b = appendString(b, unix.NLMSGERR_ATTR_MSG, "Unknown link type")
			return [][]byte{msg(unix.NLMSG_ERROR, flags, r.seq, b)}
		})
		err := c.addLink("rxe0", "frob", "lo")
		if !errors.Is(err, unix.EINVAL) || !strings.Contains(err.Error(), "Unknown link type") {
			t.Errorf("repeat %v: %v", repeat, err)
		}
	}
}

// TestNoRDMA: without netlink and sysfs, the error says what is missing.
func TestNoRDMA(t *testing.T) {
	c := deaf(unix.EPROTONOSUPPORT, t.TempDir())
	_, err := c.devices()
	if !errors.Is(err, ErrNoRDMA) || !errors.Is(err, unix.EPROTONOSUPPORT) ||
		!strings.Contains(err.Error(), "rdma link add") {
		t.Errorf("devices: %v", err)
	}
	if _, err := c.clientCharDev("rdma_cm"); !errors.Is(err, ErrNoRDMA) {
		t.Errorf("clientCharDev: %v", err)
	}
	if _, err := c.resources("rxe0"); !errors.Is(err, ErrNoRDMA) {
		t.Errorf("resources: %v", err)
	}
	// A sandbox forbids netlink on a host that has RDMA.
	c.sys = tree(t, map[string]string{"class/infiniband/rxe0/parent": "eth0\n"})
	if _, err := c.clientCharDev("rdma_cm"); !errors.Is(err, unix.EPROTONOSUPPORT) || errors.Is(err, ErrNoRDMA) {
		t.Errorf("clientCharDev in a sandbox: %v", err)
	}
}
