package devicetest

import (
	"context"
	"encoding/binary"
	"errors"
	"net/netip"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/internal/rdmacm"
	"github.com/goverbs/goverbs/internal/uapi"
	"golang.org/x/sys/unix"
)

// A mob sends connection requests directly and never reads the replies.
type mob struct {
	t    *testing.T
	file *rdmacm.File
	to   []byte // the destination of the requests: a sockaddr_in
	ids  []uint32
}

func newMob(t *testing.T, to netip.AddrPort) *mob {
	t.Helper()
	addr := binary.NativeEndian.AppendUint16(nil, unix.AF_INET)
	addr = binary.BigEndian.AppendUint16(addr, to.Port())
	addr = append(append(addr, to.Addr().AsSlice()...), make([]byte, 8)...)
	return &mob{t: t, file: must(rdmacm.Open())(t), to: addr}
}

// prepare creates ids with resolved routes.
func (m *mob) prepare(n int) {
	m.t.Helper()
	for k := range n {
		id := must(m.file.CreateID(uint64(k+1), uapi.RDMA_PS_TCP, 0))(m.t)
		m.ids = append(m.ids, id)
		check(m.t, m.file.ResolveAddr(id, nil, m.to, 2000))
		m.event(rdmacm.EventAddrResolved)
		check(m.t, m.file.ResolveRoute(id, 2000))
		m.event(rdmacm.EventRouteResolved)
	}
}

func (m *mob) event(want uint32) {
	m.t.Helper()
	var e uapi.RdmaUcmEventResp
	if check(m.t, m.file.NextEvent(&e)); e.Event != want {
		m.t.Fatalf("event %d, want %d", e.Event, want)
	}
}

// request sends the requests of the prepared ids.
func (m *mob) request() {
	m.t.Helper()
	for k, id := range m.ids {
		p := uapi.RdmaUcmConnParam{QpNum: uint32(0x10000 + k), RetryCount: 7, RnrRetryCount: 7, Valid: 1}
		check(m.t, m.file.Connect(&uapi.RdmaUcmConnect{Id: id, ConnParam: p}))
	}
}

func (m *mob) leave() {
	m.t.Helper()
	for _, id := range m.ids {
		must(m.file.DestroyID(id))(m.t)
	}
	check(m.t, m.file.Close())
}

// TestDeviceFlood starts 400 peers, in soak a thousand, that only send a request, while clients connect. Served one
// after the other, the peers would delay the clients for hours. The test checks that the listener's objects are limited
// and that none remain.
func TestDeviceFlood(t *testing.T) {
	begin(t)
	const clients = 20
	crowd := 400
	if os.Getenv("GOVERBS_SOAK_ROUNDS") != "" {
		crowd = 1000
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	now := leavesNothing(t)
	l := must(cm.Listen(deviceIP+":0", nil))(t)
	m := newMob(t, l.Addr())
	m.prepare(crowd)
	before, fds, goroutines := kernelObjects(t), count(t, "fd"), runtime.NumGoroutine()
	served := make(chan error, 1)
	go func() { served <- serveAndClose(ctx, l) }()
	m.request()
	start := time.Now()
	dialed := make(chan error, clients)
	for range clients {
		go func() {
			ctx, cancel := context.WithTimeout(ctx, 90*time.Second)
			defer cancel()
			c, err := cm.Dial(ctx, l.Addr().String(), nil)
			if err == nil {
				err = c.Close()
			}
			dialed <- err
		}()
	}
	// Each connection has a QP and two CQs.
	const most = 256 + 2*clients + 16
	var qps, routines, files uint64
	for n := 0; n < clients; {
		select {
		case err := <-dialed:
			n++
			check(t, err)
		case <-time.After(pause):
			qps = max(qps, kernelObjects(t)["qp"]-before["qp"])
			routines = max(routines, uint64(runtime.NumGoroutine()-goroutines))
			files = max(files, uint64(max(count(t, "fd")-fds, 0)))
		}
	}
	descriptors := min(2*most, channels(t)) + 16
	t.Logf("%d clients beside %d half-open requests in %v; at most %d QPs, %d goroutines and %d descriptors more",
		clients, crowd, time.Since(start), qps, routines, files)
	if qps > most || routines > 2*most || files > uint64(descriptors) {
		t.Errorf("more than %d QPs, %d goroutines or %d descriptors", most, 2*most, descriptors)
	}
	m.leave()
	check(t, l.Close())
	if err := <-served; !errors.Is(err, cm.ErrListenerClosed) {
		t.Error(err)
	}
	now()
}

// serveAndClose is a serial accept loop.
func serveAndClose(ctx context.Context, l *cm.Listener) error {
	for {
		c, err := l.Accept(ctx)
		if errors.Is(err, cm.ErrListenerClosed) || ctx.Err() != nil {
			return err
		}
		if err == nil {
			go func() {
				<-c.Disconnected()
				_ = c.Close() // leavesNothing finds remaining objects
			}()
		}
	}
}
