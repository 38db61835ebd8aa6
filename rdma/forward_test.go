package rdma_test

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/rdma"
)

// TestForward checks that the buffer of a message of any length can be sent in a message, a call, a reply and a WRITE,
// also on the connection that has received it, and that the sender may go on each time.
func TestForward(t *testing.T) {
	t.Parallel()
	in := connect(t, &rdma.Options{Depth: 2}, &rdma.Options{Depth: 2})
	out := in.sibling(t)
	ctx := limit(t)
	_, s := out.share(t, 1<<20, allRights)
	echoes := background(func() error { echoBuffers(ctx, t, out.server); return nil })
	for i := range 40 {
		for _, n := range []int{0, 8, 128, 129, 4096, 4097, 100000} {
			want := pattern(n, i)
			called := background(func() error {
				m, err := in.client.Call(ctx, want)
				if err == nil && !bytes.Equal(m.Bytes(), want) {
					err = errors.New("another reply")
				}
				m.Release()
				return err
			})
			m := must(in.server.Recv(ctx))(t)
			check(t, out.client.WriteBuffer(ctx, m.Buffer, s.Token(), 0))
			got := make([]byte, n)
			check(t, out.client.Read(ctx, got, s.Token(), 0))
			if !bytes.Equal(got, want) {
				t.Errorf("WriteBuffer of %d bytes: other data", n)
			}
			check(t, out.client.SendBuffer(ctx, m.Buffer))
			back := must(out.client.Recv(ctx))(t)
			reply := must(out.client.CallBuffer(ctx, back.Buffer))(t)
			check(t, m.ReplyBuffer(ctx, reply.Buffer))
			check(t, within(t, called, "Call"))
		}
	}
	check(t, out.client.Close())
	check(t, within(t, echoes, "the echo"))
}

// echoBuffers sends messages and calls back as they are.
func echoBuffers(ctx context.Context, t *testing.T, c *rdma.Conn) {
	for {
		m, err := c.Recv(ctx)
		if ended(t, err) {
			return
		}
		if m.IsCall() {
			err = m.ReplyBuffer(ctx, m.Buffer)
		} else {
			err = c.SendBuffer(ctx, m.Buffer)
		}
		if ended(t, err) {
			return
		}
	}
}

// sibling returns a second connection between the machines of p.
func (p *pair) sibling(t *testing.T) *pair {
	t.Helper()
	second := &pair{net: p.net, here: p.there, there: p.here} // the other way round: p.server has the device of client
	second.dial(t, &rdma.Options{Depth: 2}, &rdma.Options{Depth: 2})
	return second
}

// TestForwardErrors checks that a message that could not be forwarded still belongs to the program, and the errors for
// memory that cannot be used.
func TestForwardErrors(t *testing.T) {
	p := connect(t, nil, nil)
	ctx := limit(t)
	_, s := p.share(t, 4096, allRights)
	check(t, p.server.Send(ctx, []byte("short")))
	m := must(p.client.Recv(ctx))(t)
	canceled, cancel := context.WithCancel(ctx)
	cancel()
	isError(t, p.client.SendBuffer(canceled, m.Buffer), context.Canceled)
	err := p.client.ReadBuffer(ctx, m.Buffer, s.Token(), 0)
	isError(t, err, rdma.ErrForeign)
	if !strings.Contains(err.Error(), "Conn.Alloc") {
		t.Errorf("%v: it does not say the fix", err)
	}
	b := p.client.NewBatch()
	b.Write(m.Buffer, s.Token(), 0)
	isError(t, b.Do(ctx), rdma.ErrForeign)
	if string(m.Bytes()) != "short" {
		t.Errorf("%q", m.Bytes())
	}
	check(t, p.client.WriteImmBuffer(ctx, m.Buffer, s.Token(), 8, 77))
	w := must(p.server.Recv(ctx))(t)
	if imm, ok := w.Imm(); imm != 77 || !ok {
		t.Error("another message")
	}
	w.Release()
	m.Release()
	roundTrip(t, p)
}
