package onesided

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/goverbs/goverbs/verbstest"
)

// TestCancel checks that the server does not write the memory of a canceled request, which
// other requests use. The server does not notice that the client has left.
func TestCancel(t *testing.T) {
	r := newRig(t)
	r.net.Allow(verbstest.RemoteAccess, verbstest.Destination)
	r.put("a", randomBytes(bufferSize))
	finished := make(chan bool)
	r.front.Store(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		r.handler.ServeHTTP(w, q.WithContext(context.WithoutCancel(q.Context())))
		finished <- true
	}))
	for range 2 { // with a new link, too
		heal := r.net.AddFault(verbstest.PacketFault{Action: verbstest.Drop, To: r.client, Skip: 5})
		ctx, cancel := context.WithTimeout(r.ctx, 50*time.Millisecond)
		_, err := r.do(ctx, http.MethodGet, "a", nil)
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("%v, want DeadlineExceeded", err)
		}
		for _, b := range r.taken(r.transport.Pool) { // another request uses the memory
			for i := range b.mem {
				b.mem[i] = 0xa5
			}
		}
		heal()
		<-finished // the server has tried again
		for _, b := range r.taken(r.transport.Pool) {
			for i, v := range b.mem {
				if v != 0xa5 {
					t.Fatalf("byte %d of a buffer in use is %#x: written by the canceled request", i, v)
				}
			}
		}
	}
}

// taken returns the buffers of a pool that no request uses, registered. They stay free.
func (r *rig) taken(p *Pool) (all []*buffer) {
	r.Helper()
	for range p.count {
		b, err := p.get(r.ctx)
		if err != nil {
			r.Fatal(err)
		}
		all = append(all, b)
		b.release()
	}
	return all
}

// TestRepeated has a server that uses the token of a GET after its connection was lost, and
// after the response to the repeated GET.
func TestRepeated(t *testing.T) {
	r := newRig(t)
	r.net.Allow(verbstest.RemoteAccess, verbstest.Destination)
	data := randomBytes(bufferSize)
	r.put("a", data)
	var first *http.Request
	r.front.Store(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if first == nil {
			first = q.Clone(context.WithoutCancel(q.Context()))
			panic(http.ErrAbortHandler) // closes the connection
		}
		w.Header().Set(headerRefused, "repeated")
		r.store.ServeHTTP(w, q)
	}))
	r.byRDMA(r.get("a", data), -1)
	for _, b := range r.taken(r.transport.Pool) {
		clear(b.mem)
	}
	r.server.Run(func() { r.handler.ServeHTTP(httptest.NewRecorder(), first) })
	for _, b := range r.taken(r.transport.Pool) {
		if !bytes.Equal(b.mem, make([]byte, bufferSize)) {
			t.Error("the server has written a buffer of another request")
		}
	}
}

// TestCancelEnds checks that the server stops when its client has canceled.
func TestCancelEnds(t *testing.T) {
	r := newRig(t)
	data := randomBytes(bufferSize)
	r.put("a", data)
	finished := make(chan bool, 9)
	r.front.Store(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		r.handler.ServeHTTP(w, q)
		finished <- true
	}))
	heal := r.net.AddFault(verbstest.PacketFault{Action: verbstest.Drop, To: r.client})
	ctx, cancel := context.WithTimeout(r.ctx, 50*time.Millisecond)
	defer cancel()
	if _, err := r.do(ctx, http.MethodGet, "a", nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("%v, want DeadlineExceeded", err)
	}
	heal()
	<-finished
	r.allFree()
	r.byRDMA(r.get("a", data), len(data)) // on a new link
}

func TestLossAndDelay(t *testing.T) {
	for _, f := range []verbstest.PacketFault{
		{Action: verbstest.Drop, Probability: 0.03},
		{Action: verbstest.Delay, Delay: 2 * time.Millisecond},
		{Action: verbstest.Duplicate, Probability: 0.1},
	} {
		t.Run(string(f.Action), func(t *testing.T) {
			r := newRig(t)
			data := randomBytes(bufferSize)
			r.net.AddFault(f)
			for range 3 {
				r.byRDMA(r.put("a", data), len(data))
				r.byRDMA(r.get("a", data), len(data))
			}
			r.allFree()
		})
	}
}

// TestLies has tokens whose memory the client has not offered.
func TestLies(t *testing.T) {
	for name, lie := range map[string]func(Token) string{
		"bounds":    func(t Token) string { t.Addr += bufferSize - 100; return t.String() },
		"key":       func(t Token) string { t.RKey ^= 0x5500; return t.String() },
		"length":    func(t Token) string { t.Addr, t.Length = t.Addr-1, t.Length+1; return t.String() },
		"transport": func(t Token) string { t.Transport = "xy"; return t.String() },
		"peer":      func(t Token) string { t.Peer = "nothing"; return t.String() },
		"version":   func(t Token) string { return "9" + t.String()[1:] },
		"text":      func(Token) string { return strings.Repeat(";", 99) },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.net.Allow(verbstest.RemoteAccess)
			data := randomBytes(10000)
			honest := r.transport.Base
			r.put("a", data)
			r.transport.Base = tap{RoundTripper: honest, request: lie}
			resp := r.get("a", data)
			r.byRDMA(resp, -1)
			if Refused(resp) == "" {
				t.Error("the response has no reason")
			}
			r.byRDMA(r.put("b", data), -1)
			r.transport.Base = honest
			r.byRDMA(r.get("a", data), len(data))
			r.allFree()
		})
	}
}

// TestStale has a token of memory that the client has revoked since, and a server that has
// forgotten its links.
func TestStale(t *testing.T) {
	r := newRig(t)
	r.net.Allow(verbstest.RemoteAccess)
	data := randomBytes(10000)
	r.put("a", data)
	if err := r.handler.links.close(); err != nil {
		t.Fatal(err)
	}
	r.handler.links.closed = false
	r.byRDMA(r.get("a", data), len(data))

	var keys []uint32
	for range buffers {
		b := <-r.transport.Pool.free
		keys = append(keys, b.mr.RKey())
		b.revoke(func() error { return nil })
	}
	honest := r.transport.Base
	r.transport.Base = tap{RoundTripper: honest, request: func(t Token) string {
		t.RKey = keys[0]
		return t.String()
	}}
	r.byRDMA(r.get("a", data), -1)
	r.allFree()
}

func TestClientKilled(t *testing.T) {
	r := newRig(t)
	data := randomBytes(10000)
	r.put("a", data)
	r.client.Kill()
	r.byRDMA(r.get("a", data), -1) // its HTTP is not on the machine
	r.serverFree()
}

func TestServerKilled(t *testing.T) {
	r := newRig(t)
	r.put("a", randomBytes(10000))
	began := make(chan bool, 9)
	r.front.Store(http.HandlerFunc(func(_ http.ResponseWriter, q *http.Request) {
		began <- true
		<-q.Context().Done()
	}))
	go func() {
		<-began
		r.server.Kill()
		r.http.Listener.Close()
		r.http.CloseClientConnections()
	}()
	if _, err := r.do(r.ctx, http.MethodGet, "a", nil); err == nil || r.ctx.Err() != nil {
		t.Errorf("%v, want the connection's error", err)
	}
	if n := len(r.transport.Pool.free); n != buffers {
		t.Errorf("%d of the client's %d buffers are free", n, buffers)
	}
}

func TestRemoval(t *testing.T) {
	for _, which := range []string{"client", "server"} {
		t.Run(which, func(t *testing.T) {
			r := newRig(t)
			data := randomBytes(10000)
			r.put("a", data)
			map[string]*verbstest.Machine{"client": r.client, "server": r.server}[which].RemoveDevice()
			for range 3 {
				r.byRDMA(r.get("a", data), -1)
				r.byRDMA(r.put("b", data), -1)
			}
			r.allFree()
		})
	}
}
