package onesided

import (
	"bytes"
	"context"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/goverbs/goverbs/verbstest"
)

const (
	bufferSize = 64 << 10
	buffers    = 4
)

// objects is a handler with objects in memory.
type objects struct{ m sync.Map }

func (o *objects) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if writes(r.Method) {
		data, err := io.ReadAll(r.Body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		o.m.Store(r.URL.Path, data)
		w.WriteHeader(http.StatusCreated)
		return
	}
	data, ok := o.m.Load(r.URL.Path)
	if !ok {
		http.NotFound(w, r)
		return
	}
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(data.([]byte)))
}

// A rig is a server and a client on two machines. HTTP travels over the loopback interface.
type rig struct {
	*testing.T
	net            *verbstest.Network
	server, client *verbstest.Machine
	store          *objects
	handler        *Handler
	front          atomic.Value // a http.HandlerFunc, which handler is behind
	http           *httptest.Server
	transport      *Transport
	ctx            context.Context
}

// service is the Service of the rigs' clients.
var service string

func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{T: t, net: verbstest.NewNetwork(t), store: &objects{}}
	r.server, r.client = r.net.Machine(), r.net.Machine()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	r.ctx = ctx
	base := &http.Transport{}
	r.server.Run(func() {
		r.handler = &Handler{Next: r.store, Pool: r.pool()}
		r.front.Store(http.HandlerFunc(r.handler.ServeHTTP))
		r.http = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
			r.front.Load().(http.HandlerFunc)(w, q)
		}))
	})
	r.client.Run(func() { r.transport = &Transport{Base: base, Pool: r.pool(), Service: service} })
	t.Cleanup(func() {
		cancel()
		base.CloseIdleConnections()
		r.http.Close()
		r.transport.Close() // fails if the test has removed the device
		r.handler.Close()
		r.handler.Pool.Close()
		r.transport.Pool.Close()
	})
	return r
}

func (r *rig) pool() *Pool {
	p, err := OpenPool("", buffers, bufferSize)
	if err != nil {
		r.Fatal(err)
	}
	return p
}

// do sends a request from the client's machine. pairs are headers.
func (r *rig) do(ctx context.Context, method, name string, body []byte, pairs ...string) (resp *http.Response,
	err error) {
	r.client.Run(func() {
		var req *http.Request
		if req, err = http.NewRequestWithContext(ctx, method, r.http.URL+"/"+name, bytes.NewReader(body)); err != nil {
			return
		}
		for i := 0; i < len(pairs); i += 2 {
			req.Header.Set(pairs[i], pairs[i+1])
		}
		resp, err = r.transport.RoundTrip(req)
	})
	return resp, err
}

// put stores an object.
func (r *rig) put(name string, data []byte) *http.Response {
	r.Helper()
	resp, err := r.do(r.ctx, http.MethodPut, name, data)
	if err != nil {
		r.Fatal(err)
	}
	resp.Body.Close()
	if got, ok := r.store.m.Load("/" + name); resp.StatusCode != http.StatusCreated || !ok ||
		!bytes.Equal(got.([]byte), data) {
		r.Errorf("put %s: %s, and the server has other data", name, resp.Status)
	}
	return resp
}

// get checks that an object has the data.
func (r *rig) get(name string, data []byte, pairs ...string) *http.Response {
	r.Helper()
	resp, err := r.do(r.ctx, http.MethodGet, name, nil, pairs...)
	if err != nil {
		r.Fatal(err)
	}
	defer resp.Body.Close()
	got, err := io.ReadAll(resp.Body)
	if err != nil || !bytes.Equal(got, data) {
		r.Errorf("get %s: %s, %d bytes, which differ from the object's %d (%v)", name, resp.Status, len(got), len(data), err)
	}
	return resp
}

// byRDMA checks how many bytes a response has moved by RDMA; -1 stands for TCP.
func (r *rig) byRDMA(resp *http.Response, want int) {
	r.Helper()
	n, ok := Moved(resp)
	if !ok {
		n = -1
	}
	if n != want {
		r.Errorf("%s %s: %d bytes by RDMA, want %d (%s)", resp.Request.Method, resp.Request.URL.Path, n, want, Refused(resp))
	}
}

// allFree checks that no request holds a buffer.
func (r *rig) allFree() {
	r.Helper()
	if n := len(r.transport.Pool.free); n != buffers {
		r.Errorf("%d of the client's %d buffers are free", n, buffers)
	}
	r.serverFree()
}

// serverFree waits until the server's requests have released their buffers.
func (r *rig) serverFree() {
	r.Helper()
	for n := range buffers {
		select {
		case b := <-r.handler.Pool.free:
			defer b.release()
		case <-r.ctx.Done():
			r.Fatalf("%d of the server's %d buffers are free", n, buffers)
		}
	}
}

func randomBytes(n int) []byte {
	b := make([]byte, n)
	rand.NewChaCha8([32]byte{1}).Read(b)
	return b
}
