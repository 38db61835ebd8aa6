package nldev

import (
	"bytes"
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/uapi"
)

// dcbKernel replies to each request with the same datagram.
type dcbKernel struct {
	request, reply []byte
	err            error
}

func (k *dcbKernel) send(b []byte) error      { k.request = bytes.Clone(b); return k.err }
func (k *dcbKernel) receive() ([]byte, error) { return k.reply, nil }
func (k *dcbKernel) close()                   {}

// datagram returns a message.
func datagram(typ uint16, payload []byte) []byte {
	b := order.AppendUint32(nil, uint32(headerLen+len(payload)))
	b = order.AppendUint16(b, typ)
	b = order.AppendUint16(b, 0)
	b = order.AppendUint32(b, 1)
	b = order.AppendUint32(b, 0)
	return append(b, payload...)
}

// pfcReply is a reply as net/dcb/dcbnl.c of the kernel writes it, with attributes before and beside the wanted one.
func pfcReply(enabled byte) []byte {
	ieee := appendAttr(nil, 1 /* DCB_ATTR_IEEE_ETS */, make([]byte, 59))
	ieee = appendAttr(ieee, uapi.DCB_ATTR_IEEE_PFC, append([]byte{8, enabled}, make([]byte, 134)...))
	payload := appendString([]byte{unix.AF_UNSPEC, uapi.DCB_CMD_IEEE_GET, 0, 0}, uapi.DCB_ATTR_IFNAME, "eth0")
	return datagram(unix.RTM_GETDCB, appendAttr(payload, uapi.DCB_ATTR_IEEE, ieee))
}

func TestFlowControl(t *testing.T) {
	k := &dcbKernel{reply: pfcReply(1<<3 | 1<<6)}
	got, err := flowControl(k, "eth0")
	if err != nil || got != 1<<3|1<<6 {
		t.Errorf("%#x, %v", got, err)
	}
	want := order.AppendUint32(nil, 32)
	want = order.AppendUint16(want, unix.RTM_GETDCB)
	want = order.AppendUint16(want, unix.NLM_F_REQUEST)
	want = order.AppendUint32(want, 1)
	want = order.AppendUint32(want, 0)
	want = append(want, 0, 21, 0, 0)
	want = order.AppendUint16(want, 9)
	want = order.AppendUint16(want, 1)
	want = append(want, "eth0\x00\x00\x00\x00"...)
	if !bytes.Equal(k.request, want) {
		t.Errorf("request %x, want %x", k.request, want)
	}
}

func TestFlowControlFails(t *testing.T) {
	refused := order.AppendUint32(nil, ^uint32(unix.EOPNOTSUPP)+1)
	for _, c := range []struct {
		k    dcbKernel
		want error
	}{
		{dcbKernel{err: unix.EPERM}, unix.EPERM},
		{dcbKernel{reply: datagram(unix.NLMSG_ERROR, append(refused, make([]byte, headerLen)...))}, unix.EOPNOTSUPP},
		{dcbKernel{reply: datagram(unix.RTM_GETDCB, make([]byte, dcbLen))}, unix.EOPNOTSUPP},
		{dcbKernel{reply: datagram(unix.NLMSG_ERROR, make([]byte, 4))}, errMalformed},
		{dcbKernel{reply: datagram(unix.RTM_NEWLINK, make([]byte, 16))}, errMalformed},
		{dcbKernel{reply: []byte{1, 2, 3}}, errMalformed},
		{dcbKernel{}, errMalformed},
	} {
		if _, err := flowControl(&c.k, "eth0"); !errors.Is(err, c.want) {
			t.Errorf("%x: %v, want %v", c.k.reply, err, c.want)
		}
	}
	whole := pfcReply(1)
	for n := range whole { // no length of a truncated reply does harm
		b := bytes.Clone(whole[:n])
		if n >= 4 {
			order.PutUint32(b, uint32(n))
		}
		if _, err := flowControl(&dcbKernel{reply: b}, "eth0"); err == nil {
			t.Errorf("a reply that ends after %d bytes is accepted", n)
		}
	}
}

// TestFlowControlKernel asks the kernel of this machine, which has no flow control for the loopback interface. A kernel
// or a sandbox without DCB refuses the request in another way.
func TestFlowControlKernel(t *testing.T) {
	if got, err := FlowControl("lo"); err == nil {
		t.Errorf("lo has flow control %#x", got)
	} else {
		t.Log(err)
	}
}
