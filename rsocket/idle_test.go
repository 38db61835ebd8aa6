package rsocket_test

import (
	"fmt"
	"io"
	"runtime"
	"testing"
	"time"

	"github.com/goverbs/goverbs/bench/procmem"
	"github.com/goverbs/goverbs/rsocket"
)

// BenchmarkIdle measures round trips of 64 bytes on a connection beside idle ones, and what each idle connection takes,
// both of its ends and the device in memory included. GOVERBS_RSOCKET_CONNS=10000 adds a larger number.
func BenchmarkIdle(b *testing.B) {
	counts := []int{0, 100}
	if n := connections(b, 0); n > 0 {
		counts = append(counts, n)
	}
	for _, n := range counts {
		b.Run(fmt.Sprintf("conns=%d", n), func(b *testing.B) { benchmarkIdle(b, n) })
	}
}

func benchmarkIdle(b *testing.B, n int) {
	config := rsocket.Config{RecvBuffer: 4096, SendBuffer: 4096, RecvQueue: 16, SendQueue: 16, Polling: -1}
	p := machines(b)
	l := p.listen(b, config)
	check(b, l.SetDeadline(time.Now().Add(20*time.Minute)))
	client, server := p.accept(b, l, config)
	before, started := must(procmem.Now())(b), runtime.NumGoroutine()
	for range n {
		p.accept(b, l, config)
	}
	after, started := must(procmem.Now())(b), runtime.NumGoroutine()-started
	echoed := background(func() error { _, err := io.Copy(server, server); return err })
	buf := make([]byte, 64)
	for b.Loop() {
		write(b, client, buf)
		must(io.ReadFull(client, buf))(b)
	}
	if n > 0 { // a loop forgets what was reported before
		b.ReportMetric((after.RSS-before.RSS)/float64(n), "B/conn")
		b.ReportMetric(float64(started)/float64(n), "goroutines/conn")
	}
	check(b, client.CloseWrite())
	check(b, within(b, echoed, "Copy"))
	check(b, l.Close())
}

// accept returns both ends of another connection to a listener. They are closed with the benchmark.
func (p *pair) accept(t testing.TB, l *rsocket.Listener, config rsocket.Config) (client, server *rsocket.Conn) {
	t.Helper()
	var accepted <-chan error
	p.onServer(func() { accepted = background(func() (err error) { server, err = l.AcceptConn(); return err }) })
	p.onClient(func() {
		d := &rsocket.Dialer{Config: config}
		client = must(d.DialContext(t.Context(), "tcp", p.addr(l)))(t).(*rsocket.Conn)
	})
	check(t, within(t, accepted, "Accept"))
	t.Cleanup(func() {
		closed := background(server.Close)
		check(t, client.Close())
		check(t, <-closed)
	})
	return client, server
}
