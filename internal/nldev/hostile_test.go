package nldev

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/uapi"
)

// TestHostileReplies: invalid replies are errors that describe the problem.
func TestHostileReplies(t *testing.T) {
	for _, c := range []struct {
		name  string
		reply func(r request) [][]byte
		want  error
	}{
		{"nothing", func(request) [][]byte { return nil }, unix.ETIMEDOUT},
		{"short header", func(r request) [][]byte { return [][]byte{done(r)[:15]} }, errMalformed},
		{"empty datagrams for ever", func(request) [][]byte { return make([][]byte, 10) }, unix.ETIMEDOUT},
		{"message longer than datagram", func(r request) [][]byte {
			b := reply(r, unix.NLM_F_MULTI, deviceAttrs(1, "rxe0"))
			return [][]byte{b[:len(b)-4]}
		}, errMalformed},
		{"message length 0", func(r request) [][]byte {
			b := done(r)
			order.PutUint32(b, 0)
			return [][]byte{b}
		}, errMalformed},
		{"message length 2^32-1", func(r request) [][]byte {
			b := done(r)
			order.PutUint32(b, 1<<32-1)
			return [][]byte{b}
		}, errMalformed},
		{"other sequence number", func(r request) [][]byte {
			r.seq++
			return [][]byte{done(r)}
		}, errMalformed},
		{"other command", func(r request) [][]byte {
			r.op = uapi.RDMA_NLDEV_CMD_PORT_GET
			return [][]byte{reply(r, 0, deviceAttrs(1, "rxe0"))}
		}, errMalformed},
		{"overrun", func(r request) [][]byte { return [][]byte{msg(unix.NLMSG_OVERRUN, 0, r.seq, nil)} }, errMalformed},
		{"error without code", func(r request) [][]byte { return [][]byte{msg(unix.NLMSG_ERROR, 0, r.seq, nil)} },
			errMalformed},
		{"positive error code", func(r request) [][]byte {
			return [][]byte{msg(unix.NLMSG_ERROR, 0, r.seq, order.AppendUint32(nil, 22))}
		}, errMalformed},
		{"error repeats too much", func(r request) [][]byte {
			b := order.AppendUint32(nil, uint32(0xffffffff))
			b = order.AppendUint32(b, 1<<31)
			return [][]byte{msg(unix.NLMSG_ERROR, ackTLVs, r.seq, append(b, make([]byte, 12)...))}
		}, errMalformed},
		{"dump that fails at its end", func(r request) [][]byte {
			return [][]byte{msg(unix.NLMSG_DONE, 0, r.seq, order.AppendUint32(nil, uint32(0xffffffff-uint32(unix.ENOMEM)+1)))}
		}, unix.ENOMEM},
		{"attribute length 3", func(r request) [][]byte { return [][]byte{reply(r, 0, []byte{3, 0, 1, 0})} }, errMalformed},
		{"attribute beyond the message",
			func(r request) [][]byte { return [][]byte{reply(r, 0, []byte{12, 0, 1, 0, 0, 0, 0, 0})} }, errMalformed},
		{"half an attribute header", func(r request) [][]byte {
			b := reply(r, 0, []byte{3, 0, 1, 0})
			order.PutUint32(b, headerLen+2)
			return [][]byte{b}
		}, errMalformed},
		{"index of 3 bytes", func(r request) [][]byte {
			return [][]byte{reply(r, 0, appendAttr(nil, uapi.RDMA_NLDEV_ATTR_DEV_INDEX, []byte{1, 2, 3}))}
		}, errMalformed},
		{"index above 32 bits", func(r request) [][]byte {
			return [][]byte{reply(r, 0, appendU64(nil, uapi.RDMA_NLDEV_ATTR_DEV_INDEX, 1<<40))}
		}, errMalformed},
		{"device without name", func(r request) [][]byte {
			return [][]byte{reply(r, 0, appendU32(nil, uapi.RDMA_NLDEV_ATTR_DEV_INDEX, 1))}
		}, errMalformed},
		{"name that is a path", func(r request) [][]byte {
			return [][]byte{reply(r, 0, deviceAttrs(1, "../../etc/passwd"))}
		}, errMalformed},
		{"empty name", func(r request) [][]byte { return [][]byte{reply(r, 0, deviceAttrs(1, ""))} }, errMalformed},
	} {
		t.Run(c.name, func(t *testing.T) {
			cl := fakeClient(t, c.reply)
			devs, err := cl.devices()
			if !errors.Is(err, c.want) {
				t.Errorf("devices = %v, error %v; want %v", devs, err, c.want)
			}
		})
	}
}

// TestEndlessReply: the size of a reply is limited.
func TestEndlessReply(t *testing.T) {
	c := fakeClient(t, func(r request) [][]byte {
		one := reply(r, unix.NLM_F_MULTI, deviceAttrs(1, "rxe0"))
		var big []byte
		for len(big) < bufferSize/2 {
			big = append(big, one...)
		}
		out := make([][]byte, 0, 600)
		for range 600 {
			out = append(out, big)
		}
		return out
	})
	if _, err := c.devices(); !errors.Is(err, errMalformed) {
		t.Errorf("error %v", err)
	}
}

// FuzzReplies feeds the decoders with datagrams from the fuzzer. The first byte selects the call.
func FuzzReplies(f *testing.F) {
	r := request{message: message{seq: 1}, op: uapi.RDMA_NLDEV_CMD_GET}
	f.Add(byte(1), cat(reply(r, unix.NLM_F_MULTI, deviceAttrs(1, "rxe0")), done(r)))
	r.op = uapi.RDMA_NLDEV_CMD_GET_CHARDEV
	f.Add(byte(2), cat(reply(r, 0, nodeAttrs("uverbs0", rxeDriver)), ack(r, 0)))
	f.Add(byte(3), ack(r, unix.EPERM))
	r.op = uapi.RDMA_NLDEV_CMD_SYS_GET
	f.Add(byte(4), cat(reply(r, 0, appendAttr(nil, uapi.RDMA_NLDEV_SYS_ATTR_COPY_ON_FORK, []byte{1})), ack(r, 0)))
	f.Fuzz(func(t *testing.T, what byte, data []byte) {
		reply := func(request) [][]byte { return [][]byte{data} }
		c := client{
			dial: func() (transport, error) { return &fake{reply: reply}, nil },
			sys:  Sysfs{Root: "/nonexistent"},
		}
		switch what % 5 {
		case 0:
			_, _ = c.resources("rxe0")
		case 1:
			if devs, err := c.devices(); err == nil {
				for _, d := range devs {
					if !validName(d.Name) || d.Char != nil && !validName(d.Char.Name) {
						t.Errorf("names %q, %+v", d.Name, d.Char)
					}
				}
			}
		case 2:
			if cd, err := c.clientCharDev("rdma_cm"); err == nil && !validName(cd.Name) {
				t.Errorf("name %q", cd.Name)
			}
		case 3:
			_ = c.addLink("rxe0", "rxe", "lo")
		case 4:
			_, _ = c.system(uapi.RDMA_NLDEV_SYS_ATTR_COPY_ON_FORK)
		}
	})
}

// FuzzSummary decodes tables of counts.
func FuzzSummary(f *testing.F) {
	e := appendString(nil, uapi.RDMA_NLDEV_ATTR_RES_SUMMARY_ENTRY_NAME, "pd")
	e = appendU64(e, uapi.RDMA_NLDEV_ATTR_RES_SUMMARY_ENTRY_CURR, 3)
	e = appendAttr(nil, uapi.RDMA_NLDEV_ATTR_RES_SUMMARY_ENTRY, e)
	f.Add(appendAttr(nil, uapi.RDMA_NLDEV_ATTR_RES_SUMMARY, e))
	f.Fuzz(func(t *testing.T, data []byte) {
		if out, err := decodeSummary(data); err == nil && out == nil {
			t.Error("neither counts nor error")
		}
	})
}

// FuzzQPs decodes lists of QPs.
func FuzzQPs(f *testing.F) {
	f.Add(appendAttr(nil, uapi.RDMA_NLDEV_ATTR_RES_QP, qpEntry(1, qpTypeGSI, qpStateErr)))
	f.Fuzz(func(t *testing.T, data []byte) {
		if ports, err := decodeFailedGSI(data); err == nil && len(ports) > len(data) {
			t.Errorf("%d ports of %d bytes", len(ports), len(data))
		}
	})
}
