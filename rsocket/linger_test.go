package rsocket_test

import (
	"errors"
	"io"
	"math"
	"net"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/goverbs/goverbs/rsocket"
	"github.com/goverbs/goverbs/verbstest"
)

// TestCloseLingers closes a connection while the network is interrupted. By default, Close returns nil, and what was
// written arrives later, as does the end if nothing was written.
func TestCloseLingers(t *testing.T) {
	for name, written := range map[string][]byte{"data": data(5000), "only the end": nil} {
		t.Run(name, func(t *testing.T) {
			p := interrupted(t, rsocket.Config{})
			heal := p.net.Partition(p.here, p.there)
			write(t, p.client, written)
			check(t, p.client.Close())
			heal()
			b, err := io.ReadAll(p.server)
			check(t, same(b, written, err))
		})
	}
}

// TestCloseReports is TestCloseLingers with Config.Linger: Close reports that data may be lost.
func TestCloseReports(t *testing.T) {
	p := interrupted(t, rsocket.Config{Linger: time.Millisecond})
	p.net.Partition(p.here, p.there)
	_, err := p.client.Write(data(5000))
	check(t, err)
	if err := p.client.Close(); err == nil || !strings.Contains(err.Error(), "may not have received") {
		t.Errorf("Close returns %v", err)
	}
}

// stubborn is an object that cannot be closed twice.
type stubborn struct{ calls int }

var errStubborn = errors.New("it cannot be closed")

func (s *stubborn) Close() error {
	if s.calls++; s.calls <= 2 {
		return errStubborn
	}
	return nil
}

// TestCloseAgain checks that Close tries again if an object could not be closed, also in the background.
func TestCloseAgain(t *testing.T) {
	p := connect(t, rsocket.Config{}, rsocket.Config{})
	p.client.CM().Own(&stubborn{})
	isError(t, p.client.Close(), errStubborn)
	isError(t, p.client.Close(), errStubborn)
	check(t, p.client.Close())

	p = interrupted(t, rsocket.Config{})
	p.client.CM().Own(&stubborn{})
	heal := p.net.Partition(p.here, p.there)
	check(t, p.client.Close())
	heal()
	_, err := io.ReadAll(p.server)
	check(t, err)
	for rsocket.Lingering() > 0 {
		runtime.Gosched()
	}
	isError(t, p.client.Close(), errStubborn)
	check(t, p.client.Close())
}

// TestCloseAtOnce closes the peer as soon as it has read the end. Its device acknowledges several messages together,
// and none after its QP is destroyed. Close must not report that data may be lost.
func TestCloseAtOnce(t *testing.T) {
	for range 20 {
		p := connect(t, rsocket.Config{Linger: time.Minute}, rsocket.Config{})
		served := background(func() error {
			_, err := io.Copy(io.Discard, p.server)
			return errors.Join(err, p.server.Close())
		})
		for range 1000 {
			write(t, p.client, data(1000))
		}
		check(t, within(t, background(p.client.Close), "Close"))
		check(t, within(t, served, "Close of the peer"))
	}
}

// TestSetLinger checks that Close resets the connection after SetLinger(0), that it waits after SetLinger with a time,
// and that a negative number stands for the default.
func TestSetLinger(t *testing.T) {
	p := connect(t, rsocket.Config{}, rsocket.Config{})
	check(t, p.client.SetLinger(0))
	waits := background(func() error { _, err := p.client.Read(make([]byte, 1)); return err })
	check(t, p.client.Close())
	isError(t, within(t, waits, "Read"), net.ErrClosed)
	isError(t, readEnd(t, p.server), syscall.ECONNRESET)
	isError(t, p.client.SetLinger(1), net.ErrClosed)

	for _, sec := range []int{60, math.MaxInt} {
		setLingerWaits(t, sec)
	}

	p = interrupted(t, rsocket.Config{Linger: time.Minute})
	check(t, p.client.SetLinger(-1))
	heal := p.net.Partition(p.here, p.there)
	write(t, p.client, []byte("data"))
	check(t, within(t, background(p.client.Close), "Close"))
	heal()
	read(t, p.server, []byte("data"))
	isEOF(t, p.server)
}

// setLingerWaits checks that Close waits longer after SetLinger than Close of a connection with the same configuration
// that was closed later.
func setLingerWaits(t *testing.T, sec int) {
	t.Helper()
	config := rsocket.Config{Linger: time.Millisecond}
	p := interrupted(t, config)
	other := &pair{net: p.net, here: p.here, there: p.there}
	other.dial(t, config, rsocket.Config{Linger: -1})
	check(t, p.client.SetLinger(sec))
	heal := p.net.Partition(p.here, p.there)
	write(t, p.client, []byte("data"))
	write(t, other.client, []byte("data"))
	closed := background(p.client.Close)
	until(t, "Close begins", func() bool { return errors.Is(p.client.SetLinger(sec), net.ErrClosed) })
	if err := within(t, background(other.client.Close), "Close"); err == nil {
		t.Error("the other connection is closed in order")
	}
	select {
	case err := <-closed:
		t.Fatalf("after SetLinger(%d), Close has returned %v", sec, err)
	default:
	}
	heal()
	check(t, within(t, closed, "Close"))
	read(t, p.server, []byte("data"))
	isEOF(t, p.server)
}

// TestDeadPeers closes connections one after the other whose peers' machine has failed, as http.Server.Shutdown does.
// Each alone would wait for a tenth of a second. That the waits get shorter saves more time than a loaded machine
// needs.
func TestDeadPeers(t *testing.T) {
	const connections, limit = 400, 30 * time.Second
	p := machines(t)
	p.net.SetTimeouts(verbstest.Timeouts{Ack: 16}) // two seconds
	small := rsocket.Config{RecvBuffer: 4096, SendBuffer: 4096, RecvQueue: 16, SendQueue: 16, KeepAlive: -1}
	l := p.listen(t, small)
	accepted := make(chan *rsocket.Conn, connections)
	p.onServer(func() {
		go func() {
			defer close(accepted)
			for range connections {
				c, err := l.AcceptConn()
				if err != nil {
					t.Error(err)
					return
				}
				accepted <- c
			}
		}()
	})
	for range connections {
		p.onClient(func() { must((&rsocket.Dialer{Config: small}).DialContext(t.Context(), "tcp", p.addr(l)))(t) })
	}
	var served []*rsocket.Conn
	for c := range accepted {
		served = append(served, c)
	}
	check(t, l.Close())
	p.here.Kill()
	before, start := rsocket.Lingering(), time.Now()
	for _, c := range served {
		check(t, c.Close())
	}
	if d := time.Since(start); d > limit {
		t.Errorf("%d connections are closed in %v, more than %v", connections, d, limit)
	}
	until(t, "the devices give up", func() bool { return rsocket.Lingering() <= before })
}

// interrupted returns a connection that survives two seconds without a network.
func interrupted(t *testing.T, client rsocket.Config) *pair {
	p := machines(t)
	p.net.SetTimeouts(verbstest.Timeouts{Ack: 16})
	p.dial(t, client, rsocket.Config{Linger: -1})
	return p
}
