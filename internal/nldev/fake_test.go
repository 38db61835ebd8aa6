package nldev

import (
	"fmt"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/uapi"
)

// fake is a transport that replies with the results of a function.
type fake struct {
	reply  func(req request) [][]byte
	queue  [][]byte
	closed bool
}

// request is a decoded request message.
type request struct {
	message
	op    uint16
	attrs map[uint16][]byte
}

func (f *fake) send(b []byte) error {
	msgs, err := parseMessages(b)
	if err != nil || len(msgs) != 1 {
		return fmt.Errorf("bad request %x: %v", b, err)
	}
	r := request{message: msgs[0], op: msgs[0].typ & 0x3ff, attrs: map[uint16][]byte{}}
	err = eachAttr(msgs[0].payload, func(typ uint16, data []byte) error {
		r.attrs[typ] = data
		return nil
	})
	if err != nil {
		return err
	}
	f.queue = append(f.queue, f.reply(r)...)
	return nil
}

func (f *fake) receive() ([]byte, error) {
	if len(f.queue) == 0 {
		return nil, unix.ETIMEDOUT
	}
	b := f.queue[0]
	f.queue = f.queue[1:]
	return b, nil
}

func (f *fake) close() { f.closed = true }

// fakeClient returns a client whose kernel is reply. Sysfs is empty.
func fakeClient(t *testing.T, reply func(request) [][]byte) client {
	t.Helper()
	var open []*fake
	t.Cleanup(func() {
		for i, f := range open {
			if !f.closed {
				t.Errorf("transport %d was not closed", i)
			}
		}
	})
	return client{
		dial: func() (transport, error) {
			f := &fake{reply: reply}
			open = append(open, f)
			return f, nil
		},
		sys: Sysfs{Root: t.TempDir()},
	}
}

// deaf returns a client whose socket call fails.
func deaf(errno unix.Errno, root string) client {
	return client{
		dial: func() (transport, error) { return nil, fmt.Errorf("socket: %w", errno) },
		sys:  Sysfs{Root: root},
	}
}

// msg encodes one message.
func msg(typ, flags uint16, seq uint32, payload []byte) []byte {
	b := order.AppendUint32(nil, uint32(headerLen+len(payload)))
	b = order.AppendUint16(b, typ)
	b = order.AppendUint16(b, flags)
	b = order.AppendUint32(b, seq)
	b = order.AppendUint32(b, 4242)
	b = append(b, payload...)
	for len(b)%4 != 0 {
		b = append(b, 0)
	}
	return b
}

// reply encodes a reply to r.
func reply(r request, flags uint16, payload []byte) []byte {
	return msg(messageType(r.op), flags, r.seq, payload)
}

// ack encodes an acknowledgement of r, or its failure.
func ack(r request, errno unix.Errno) []byte {
	b := order.AppendUint32(nil, uint32(-int32(errno)))
	b = append(b, make([]byte, headerLen)...)
	return msg(unix.NLMSG_ERROR, capped, r.seq, b)
}

func done(r request) []byte {
	return msg(unix.NLMSG_DONE, unix.NLM_F_MULTI, r.seq, make([]byte, 4))
}

func cat(parts ...[]byte) []byte {
	var out []byte
	for _, p := range parts {
		out = append(out, p...)
	}
	return out
}

func appendU64(b []byte, typ uint16, v uint64) []byte {
	return appendAttr(b, typ, order.AppendUint64(nil, v))
}

// deviceAttrs returns a device's attributes as in the kernel's dump.
func deviceAttrs(index uint32, dev string) []byte {
	b := appendU32(nil, uapi.RDMA_NLDEV_ATTR_DEV_INDEX, index)
	b = appendString(b, uapi.RDMA_NLDEV_ATTR_DEV_NAME, dev)
	b = appendU32(b, uapi.RDMA_NLDEV_ATTR_PORT_INDEX, 1)
	b = appendAttr(b, uapi.RDMA_NLDEV_ATTR_PAD, nil)
	b = appendU64(b, uapi.RDMA_NLDEV_ATTR_CAP_FLAGS, 0x1223c76)
	b = appendString(b, uapi.RDMA_NLDEV_ATTR_FW_VERSION, "20.31.1014")
	b = appendU64(b, uapi.RDMA_NLDEV_ATTR_NODE_GUID, 0x505400fffe123456)
	b = appendAttr(b, uapi.RDMA_NLDEV_ATTR_DEV_NODE_TYPE, []byte{uapi.RDMA_NODE_IB_CA})
	return appendString(b, uapi.RDMA_NLDEV_ATTR_DEV_PROTOCOL, "roce")
}

// nodeAttrs returns the attributes of a uverbs node as the kernel sends them.
func nodeAttrs(node string, driver []byte) []byte {
	b := appendU64(nil, uapi.RDMA_NLDEV_ATTR_CHARDEV, 0xe7c1)
	b = appendU64(b, uapi.RDMA_NLDEV_ATTR_CHARDEV_ABI, 2)
	b = appendString(b, uapi.RDMA_NLDEV_ATTR_CHARDEV_NAME, node)
	return appendAttr(b, uapi.RDMA_NLDEV_ATTR_UVERBS_DRIVER_ID, driver)
}
