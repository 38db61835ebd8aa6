package devicetest

import (
	"bytes"
	"errors"
	"net/netip"
	"slices"
	"testing"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/uverbs"
	"golang.org/x/sys/unix"
)

// These are the limits in the man pages.
const (
	connectMax, connectMaxUD = 56, 180
	acceptMax, acceptMaxUD   = 196, 136
	rejectMax, rejectMaxUD   = 148, 136
)

func data(n int) []byte {
	b := make([]byte, n)
	for k := range b {
		b[k] = byte(k + 1)
	}
	return b
}

// tooMuch calls a function with more private data than there is room for, and with more than the command can have.
func tooMuch(t *testing.T, limit int, call func([]byte) error) {
	t.Helper()
	if rnic() {
		limit = rnicMax
	}
	for _, n := range []int{limit + 1, max(limit+1, 255), 256, 1 << 16} {
		isError(t, call(data(n)), []error{cm.ErrPrivateData, unix.EINVAL}, itoa(n)+" bytes", "room for "+itoa(limit))
	}
}

// rnicMax is the maximum size of all private data on iWARP. The kernels count their own four bytes of it in one byte.
const rnicMax = 251

// carried checks private data: the kernel delivers the whole field of the message,
// padded with zeros. Those of iWARP are as long as their data.
func carried(t *testing.T, got, want []byte, room int) {
	t.Helper()
	if rnic() {
		room = len(want)
	}
	if len(got) != room || !bytes.HasPrefix(got, want) || slices.Max(append(got[len(want):], 0)) != 0 {
		t.Errorf("%d bytes of private data: %x, want %x padded to %d", len(got), got, want, room)
	}
}

// TestDevicePrivateData sends private data of the maximum size in both directions: "limited to 56 bytes for
// RDMA_PS_TCP" (rdma_connect(3)), "limited to 196 bytes for RDMA_PS_TCP" (rdma_accept(3)).
func TestDevicePrivateData(t *testing.T) {
	begin(t)
	sizes := [][2]int{{0, 0}, {1, 2}, {connectMax, acceptMax}}
	if rnic() {
		sizes = append(sizes, [2]int{rnicMax, rnicMax})
	}
	for _, n := range sizes {
		t.Run(itoa(n[0])+" and "+itoa(n[1]), func(t *testing.T) { exchangeData(t, data(n[0]), data(n[1])) })
	}
}

// exchangeData sends private data with a request and its acceptance.
func exchangeData(t *testing.T, request, reply []byte) {
	k := newTalk(t)
	_, to := k.listen(t, cm.PSTCP, at(deviceIP, 0))
	client := k.id(t, cm.PSTCP)
	k.resolve(t, client, to)
	check(t, client.CreateQP(nil, small()))
	tooMuch(t, connectMax, func(b []byte) error { return client.Connect(&cm.ConnParam{PrivateData: b}) })
	check(t, client.Connect(&cm.ConnParam{PrivateData: request}))
	e := k.good(t, cm.EventConnectRequest, nil)
	child := e.ID
	closing(t, child)
	carried(t, e.PrivateData, request, connectMax)
	tooMuch(t, rejectMax, child.Reject)
	check(t, child.CreateQP(nil, small()))
	check(t, child.Accept(&cm.ConnParam{PrivateData: reply}))
	carried(t, k.established(t, client, child).PrivateData, reply, acceptMax)
	carries(t, client, child, "data")
}

// TestDeviceTooMuchDataToAccept checks that the connection fails because the QP has already been moved, and that
// nothing else happens.
func TestDeviceTooMuchDataToAccept(t *testing.T) {
	begin(t)
	k := newTalk(t)
	_, to := k.listen(t, cm.PSTCP, at(deviceIP, 0))
	sizes, room, most := []int{acceptMax + 1, 255, 256}, acceptMax, connectMax
	if rnic() {
		sizes, room, most = []int{rnicMax + 1}, rnicMax, rnicMax
	}
	for _, n := range sizes {
		client, child := k.request(t, cm.PSTCP, to, nil)
		isError(t, child.Accept(&cm.ConnParam{PrivateData: data(n)}), []error{cm.ErrPrivateData, unix.EINVAL},
			itoa(n)+" bytes", "room for "+itoa(room))
		check(t, child.Close())
		isError(t, k.next(t, cm.EventRejected, client).Err(), []error{cm.ErrRejected})
		check(t, client.Close())
	}
	_, err := cm.Dial(k.ctx, to.String(), &cm.Options{PrivateData: data(most + 1)})
	isError(t, err, []error{cm.ErrPrivateData}, itoa(most+1)+" bytes")
}

// TestDeviceReject sends private data with a rejection: "the specified data will be passed to the remote side"
// (rdma_reject(3)).
func TestDeviceReject(t *testing.T) {
	begin(t)
	k := newTalk(t)
	_, to := k.listen(t, cm.PSTCP, at(deviceIP, 0))
	for _, n := range []int{0, 1, rejectMax} {
		client, child := k.request(t, cm.PSTCP, to, nil)
		mr := must(client.AllocMsgs(8))(t)
		check(t, client.PostRecv(1, mr.SGE(0, 8)))
		check(t, child.Reject(data(n)))
		e := k.next(t, cm.EventRejected, client)
		carried(t, e.PrivateData, data(n), rejectMax)
		isError(t, e.Err(), []error{cm.ErrRejected, unix.ECONNREFUSED}, to.String(), "rejected")
		rejected(t, e.Err(), cm.RejectConsumer, string(data(n)))
		if e.Status != int(cm.RejectConsumer) && (!rnic() || e.Status != -int(unix.ECONNRESET)) {
			t.Errorf("status %d", e.Status)
		}
		if _, err := client.RecvComp(k.ctx); !errors.Is(err, uverbs.WCWRFlushErr) {
			t.Errorf("the receive of a rejected id: %v", err)
		}
		check(t, mr.Close())
		check(t, child.Close())
		check(t, client.Close())
	}
}

// TestDeviceRejectSync checks that the error of Dial has the peer's private data.
func TestDeviceRejectSync(t *testing.T) {
	begin(t)
	l := listenAt(t, deviceIP+":0", &cm.ListenOptions{ManualAccept: true})
	ctx := limit(t)
	answered := async(func() (int, error) {
		r, err := l.Request(ctx)
		if err != nil {
			return 0, err
		}
		carried(t, r.PrivateData(), []byte("let me in"), connectMax)
		if r.ID().RemoteAddr().Addr() != netip.MustParseAddr(deviceIP) {
			t.Errorf("the request is of %v", r.ID().RemoteAddr())
		}
		return 0, r.Reject([]byte("full house"))
	})
	_, err := cm.Dial(ctx, l.Addr().String(), &cm.Options{PrivateData: []byte("let me in")})
	isError(t, err, []error{cm.ErrRejected, unix.ECONNREFUSED}, l.Addr().String())
	rejected(t, err, cm.RejectConsumer, "full house")
	answered(t)
	// A request that is closed is rejected too.
	dropped := async(func() (int, error) {
		r, err := l.Request(ctx)
		if err != nil {
			return 0, err
		}
		return 0, r.Close()
	})
	_, err = cm.Dial(ctx, l.Addr().String(), nil)
	isError(t, err, []error{cm.ErrRejected})
	dropped(t)
}

// TestDeviceECE sends the vendor's options in both directions: "get ECE parameters as were received from the
// communication peer" (rdma_get_remote_ece(3)).
func TestDeviceECE(t *testing.T) {
	begin(t)
	k := newTalk(t)
	_, to := k.listen(t, cm.PSTCP, at(deviceIP, 0))
	const vendor = 0x02c9
	for _, accept := range []bool{true, false} {
		client := k.id(t, cm.PSTCP)
		k.resolve(t, client, to)
		check(t, client.CreateQP(nil, small()))
		isError(t, client.SetLocalECE(cm.ECE{Options: 1}), []error{uverbs.ErrInvalid}, "VendorID")
		ece := cm.ECE{VendorID: vendor, Options: 0xabcdef01}
		check(t, client.SetLocalECE(ece))
		check(t, client.Connect(nil))
		e := k.good(t, cm.EventConnectRequest, nil)
		child := e.ID
		closing(t, child)
		if e.ECE != ece || child.RemoteECE() != ece {
			t.Errorf("the request has %+v, the id %+v", e.ECE, child.RemoteECE())
		}
		check(t, child.CreateQP(nil, small()))
		if !accept {
			check(t, child.RejectECE([]byte("no such option")))
			e := k.next(t, cm.EventRejected, client)
			rejected(t, e.Err(), cm.RejectVendorOption, "no such option")
			isError(t, e.Err(), []error{cm.ErrRejected}, "vendor option")
			continue
		}
		check(t, child.SetLocalECE(cm.ECE{VendorID: vendor, Options: 0x1}))
		check(t, child.Accept(nil))
		e = k.good(t, cm.EventEstablished, client)
		if want := (cm.ECE{VendorID: vendor, Options: 1}); e.ECE != want || client.RemoteECE() != want {
			t.Errorf("the reply has %+v, the id %+v", e.ECE, client.RemoteECE())
		}
		k.good(t, cm.EventEstablished, child)
	}
}
