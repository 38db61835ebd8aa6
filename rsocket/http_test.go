package rsocket_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptrace"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/goverbs/goverbs/rsocket"
	"github.com/goverbs/goverbs/verbstest"
)

// A web is an HTTP server and a client of it.
type web struct {
	*pair
	server   *http.Server
	client   *http.Client
	url      string
	accepted atomic.Int32 // connections
	served   chan error   // what Serve has returned
}

// newWeb starts a server. Its handler sends the body of a POST back, and as many bytes as the query size says.
func newWeb(t *testing.T, config rsocket.Config, routes map[string]http.HandlerFunc) *web {
	t.Helper()
	w := &web{pair: machines(t), served: make(chan error, 1)}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /data", func(out http.ResponseWriter, r *http.Request) {
		var size int
		if _, err := fmt.Sscan(r.FormValue("size"), &size); err != nil {
			http.Error(out, err.Error(), http.StatusBadRequest)
			return
		}
		_, _ = out.Write(data(size)) // the client finds out
	})
	mux.HandleFunc("POST /echo", func(out http.ResponseWriter, r *http.Request) {
		b, err := io.ReadAll(r.Body)
		if err == nil {
			_, _ = out.Write(b)
		}
	})
	for pattern, f := range routes {
		mux.HandleFunc(pattern, f)
	}
	quiet := log.New(io.Discard, "", 0) // errors of Accept after a fault
	w.server = &http.Server{Handler: mux, ErrorLog: quiet, ConnState: func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			w.accepted.Add(1)
		}
	}}
	l := w.listen(t, config)
	check(t, l.SetDeadline(time.Time{}))
	w.onServer(func() { go func() { w.served <- w.server.Serve(l) }() })
	d := &rsocket.Dialer{Config: config}
	w.client = &http.Client{Transport: &http.Transport{DialContext: d.DialContext, MaxIdleConnsPerHost: 64}}
	w.url = "http://" + w.addr(l)
	t.Cleanup(func() {
		w.client.CloseIdleConnections()
		_ = w.server.Close() // a test may have closed it, or killed its machine
		<-w.served
	})
	return w
}

// do makes a request and returns the body of the response.
func (w *web) do(ctx context.Context, method, path string, body []byte) (b []byte, err error) {
	w.onClient(func() {
		var r *http.Request
		if r, err = http.NewRequestWithContext(ctx, method, w.url+path, bytes.NewReader(body)); err != nil {
			return
		}
		var response *http.Response
		if response, err = w.client.Do(r); err != nil {
			return
		}
		b, err = io.ReadAll(response.Body)
		err = errors.Join(err, response.Body.Close())
		if err == nil && response.StatusCode != http.StatusOK {
			err = fmt.Errorf("%s: %s", response.Status, b)
		}
	})
	return b, err
}

// get and post make a request whose response is known, and check it.
func (w *web) get(ctx context.Context, size int) error {
	b, err := w.do(ctx, "GET", fmt.Sprintf("/data?size=%d", size), nil)
	return same(b, data(size), err)
}

func (w *web) post(ctx context.Context, size int) error {
	b, err := w.do(ctx, "POST", "/echo", data(size))
	return same(b, data(size), err)
}

func same(got, want []byte, err error) error {
	if err == nil && !bytes.Equal(got, want) {
		err = fmt.Errorf("the response of %d bytes differs from the %d bytes that are expected", len(got), len(want))
	}
	return err
}

// Sizes of bodies.
const (
	small = 8 << 10
	large = 1 << 20
)

// TestHTTP makes requests with bodies in both directions. All but the first use its connection.
func TestHTTP(t *testing.T) {
	w := newWeb(t, rsocket.Config{}, nil)
	reused := 0
	ctx := httptrace.WithClientTrace(limit(t), &httptrace.ClientTrace{GotConn: func(i httptrace.GotConnInfo) {
		if _, ok := i.Conn.(*rsocket.Conn); !ok {
			t.Errorf("the request uses a %T", i.Conn)
		}
		if i.Reused {
			reused++
		}
	}})
	const rounds = 10
	for range rounds {
		check(t, w.get(ctx, small))
		check(t, w.post(ctx, small))
		check(t, w.get(ctx, large))
		check(t, w.post(ctx, large))
	}
	if n := w.accepted.Load(); n != 1 || reused != 4*rounds-1 {
		t.Errorf("%d connections, of which %d requests were reuses", n, reused)
	}
}

// TestHTTPMany makes requests on 64 connections at a time.
func TestHTTPMany(t *testing.T) {
	const connections, requests = 64, 16
	w := newWeb(t, rsocket.Config{}, nil)
	w.client.Transport.(*http.Transport).MaxConnsPerHost = connections
	var all sync.WaitGroup
	ctx := limit(t)
	for i := range connections {
		all.Go(func() {
			for j := range requests {
				size := small
				if (i+j)%16 == 0 {
					size = large
				}
				request := w.get
				if j%2 == 0 {
					request = w.post
				}
				if err := request(ctx, size); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	if n := w.accepted.Load(); n < 2 || n > connections {
		t.Errorf("%d connections, want 2 to %d", n, connections)
	}
}

// TestHTTPShutdown shuts a server down while a request is processed, which is completed.
func TestHTTPShutdown(t *testing.T) {
	began, finish := make(chan struct{}), make(chan struct{})
	wait := func(out http.ResponseWriter, _ *http.Request) {
		close(began)
		<-finish
		_, _ = out.Write(data(large))
	}
	w := newWeb(t, rsocket.Config{}, map[string]http.HandlerFunc{"GET /wait": wait})
	ctx := limit(t)
	check(t, w.get(ctx, small)) // leaves an idle connection
	ended := make(chan error, 1)
	go func() {
		b, err := w.do(ctx, "GET", "/wait", nil)
		ended <- same(b, data(large), err)
	}()
	<-began
	shut := make(chan error, 1)
	closing := make(chan struct{})
	w.server.RegisterOnShutdown(func() { close(closing) })
	go func() { shut <- w.server.Shutdown(ctx) }()
	<-closing
	close(finish)
	check(t, <-ended)
	check(t, <-shut)
	if err := w.get(ctx, small); err == nil {
		t.Error("the server accepts requests after Shutdown")
	}
}

// TestHTTPCanceled makes requests whose context ends before the response. The server notices.
func TestHTTPCanceled(t *testing.T) {
	entered, left := make(chan struct{}, 1), make(chan struct{}, 1)
	w := newWeb(t, rsocket.Config{}, map[string]http.HandlerFunc{
		"GET /never": func(out http.ResponseWriter, r *http.Request) {
			entered <- struct{}{}
			<-r.Context().Done()
			left <- struct{}{}
		},
		"GET /half": func(out http.ResponseWriter, r *http.Request) {
			_, _ = out.Write(data(large))
			_ = http.NewResponseController(out).Flush()
			entered <- struct{}{}
			<-r.Context().Done()
			left <- struct{}{}
		},
	})
	for _, path := range []string{"/never", "/half"} {
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			<-entered
			cancel()
		}()
		_, err := w.do(ctx, "GET", path, nil)
		isError(t, err, context.Canceled)
		<-left
	}
	check(t, w.get(limit(t), small))
}

// TestHTTPFaults makes requests while something fails. Each ends, with the response or an error, when its context
// does at the latest. A request after the fault succeeds.
func TestHTTPFaults(t *testing.T) {
	for name, f := range map[string]httpFault{
		"loss": {0, func(w *web) func() {
			return w.net.AddFault(verbstest.PacketFault{Action: verbstest.Drop, Probability: 0.01})
		}},
		"partition": {0, func(w *web) func() { return w.net.Partition(w.here, w.there) }},
		"link down": {0, func(w *web) func() {
			w.there.SetPort(false)
			return func() { w.there.SetPort(true) }
		}},
		"server killed":  {14, func(w *web) func() { w.there.Kill(); return nil }},
		"device removed": {14, func(w *web) func() { w.there.RemoveDevice(); return nil }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // they wait most of the time
			f.test(t)
		})
	}
}

// An httpFault is a fault, and the timeout of devices, which limits how long the test takes if there is no repair.
type httpFault struct {
	ack   uint8
	begin func(*web) (repair func())
}

func (f httpFault) test(t *testing.T) {
	w := newWeb(t, rsocket.Config{}, nil)
	w.net.SetTimeouts(verbstest.Timeouts{Reply: 50 * time.Millisecond, Repeats: 4, Ack: f.ack})
	const clients = 8
	var all sync.WaitGroup
	stop, progress := make(chan struct{}), make(chan struct{})
	for i := range clients {
		all.Go(func() {
			for j := i; ; j++ {
				size := small
				if j%8 == 0 {
					size = large
				}
				w.timely(t, size)
				select {
				case progress <- struct{}{}:
				case <-stop:
					return
				}
			}
		})
	}
	for range 4 * clients {
		<-progress
	}
	repair := f.begin(w)
	for range 4 * clients {
		<-progress
	}
	if repair != nil {
		repair()
	}
	close(stop)
	all.Wait()
	if repair != nil {
		check(t, w.get(limit(t), large))
	}
}

// timely makes a request with a deadline. The test fails if it takes so much longer that it has waited for the device
// to give up, or for Close.
func (w *web) timely(t *testing.T, size int) {
	const deadline, slack = 300 * time.Millisecond, 4 * time.Second
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	defer cancel()
	start := time.Now()
	err := w.post(ctx, size)
	if d := time.Since(start); d > deadline+slack {
		t.Errorf("a request with a deadline of %v has taken %v: %v", deadline, d, err)
	}
}
