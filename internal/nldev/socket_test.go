package nldev

import (
	"errors"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// dialRoute opens a socket of NETLINK_ROUTE, which every kernel has.
func dialRoute(t *testing.T, size int, timeout time.Duration) transport {
	t.Helper()
	tr, err := dial(unix.NETLINK_ROUTE, size, timeout)
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) {
		t.Skip("a sandbox forbids netlink sockets: ", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(tr.close)
	return tr
}

// getLinks returns a request for RTM_GETLINK as a dump.
func getLinks() []byte {
	return appendRequest(unix.RTM_GETLINK, unix.NLM_F_REQUEST|unix.NLM_F_DUMP, 7, make([]byte, unix.SizeofIfInfomsg))
}

// TestSocket exchanges messages with the kernel's routing netlink.
func TestSocket(t *testing.T) {
	tr := dialRoute(t, bufferSize, 5*time.Second)
	if err := tr.send(getLinks()); err != nil {
		t.Fatal(err)
	}
	links := 0
	for {
		b, err := tr.receive()
		if err != nil {
			t.Fatal(err)
		}
		msgs, err := parseMessages(b)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range msgs {
			switch {
			case m.seq != 7:
				t.Fatalf("sequence number %d", m.seq)
			case m.typ == unix.RTM_NEWLINK:
				links++
				err := eachAttr(m.payload[unix.SizeofIfInfomsg:], func(uint16, []byte) error { return nil })
				if err != nil {
					t.Error(err)
				}
			case m.typ == unix.NLMSG_DONE:
				if links == 0 {
					t.Error("no link, not even lo")
				}
				return
			default:
				t.Fatalf("message type %d", m.typ)
			}
		}
	}
}

// TestSocketError: the kernel's error has the extended acknowledgement.
func TestSocketError(t *testing.T) {
	tr := dialRoute(t, bufferSize, 5*time.Second)
	b := appendRequest(unix.RTM_GETLINK, unix.NLM_F_REQUEST|unix.NLM_F_ACK, 9, make([]byte, unix.SizeofIfInfomsg))
	order.PutUint32(b[headerLen+4:], 1<<30) // no such interface
	if err := tr.send(b); err != nil {
		t.Fatal(err)
	}
	d, err := tr.receive()
	if err != nil {
		t.Fatal(err)
	}
	msgs, err := parseMessages(d)
	if err != nil || len(msgs) != 1 || msgs[0].typ != unix.NLMSG_ERROR {
		t.Fatalf("messages %+v, %v", msgs, err)
	}
	if errno, _, err := ackError(msgs[0]); errno != unix.ENODEV || err != nil {
		t.Errorf("errno %v, %v; want ENODEV", errno, err)
	}
}

func TestSocketTimeout(t *testing.T) {
	tr := dialRoute(t, bufferSize, 20*time.Millisecond)
	if _, err := tr.receive(); !errors.Is(err, unix.ETIMEDOUT) {
		t.Errorf("error %v", err)
	}
}

func TestSocketTruncated(t *testing.T) {
	tr := dialRoute(t, 64, 5*time.Second)
	if err := tr.send(getLinks()); err != nil {
		t.Fatal(err)
	}
	if _, err := tr.receive(); !errors.Is(err, errMalformed) {
		t.Errorf("error %v", err)
	}
}

// TestThisMachine queries the kernel that runs the test. It has devices, or the error says why
// there are none.
func TestThisMachine(t *testing.T) {
	devs, err := Devices()
	var e *Error
	if err != nil && !errors.As(err, &e) {
		t.Errorf("Devices: %v has no *Error", err)
	}
	t.Logf("%d devices, error %v", len(devs), err)
	if _, err := ClientCharDev("rdma_cm"); err != nil && !errors.As(err, &e) {
		t.Errorf("ClientCharDev: %v has no *Error", err)
	}
}
