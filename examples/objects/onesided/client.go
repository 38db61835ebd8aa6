package onesided

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"strconv"
	"sync"
	"sync/atomic"
)

// ErrChecksum is the error of a response whose data is not what the server sent.
var ErrChecksum = errors.New("onesided: the CRC of the data differs from the server's")

// ErrResponse is the error of a response with wrong headers.
var ErrResponse = errors.New("onesided: the server sent a wrong length of data")

// A Transport is a RoundTripper. The bodies of GET responses, and of PUT and POST requests of a
// known length, travel by RDMA if both ends have a device. Every other request, and every
// request after a refusal, is one of Base. The headers of a response show which it was: see
// [Moved] and [Refused].
//
// A response holds a buffer of the pool until its Body is closed, and a request waits for one
// until its context ends.
type Transport struct {
	Base http.RoundTripper // nil: http.DefaultTransport
	Pool *Pool             // nil: bodies travel over TCP
	// Service is the transport service, "rc" for reliable connections, which is the default, or
	// "dc" for dynamically connected transport, which both ends' devices must have.
	Service string

	mu   sync.Mutex
	idle map[string][]end // by host
	n    int              // in idle
}

// Moved returns the number of bytes that the server has moved by RDMA, and whether it has.
func Moved(r *http.Response) (n int, ok bool) {
	n, err := strconv.Atoi(r.Header.Get(headerLength))
	return n, err == nil && n >= 0
}

// Refused returns the server's reason not to use RDMA, or "".
func Refused(r *http.Response) string { return r.Header.Get(headerRefused) }

// Close closes the idle links. Call it before Pool.Close, when no request is in progress.
func (t *Transport) Close() (err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, ends := range t.idle {
		for _, e := range ends {
			err = errors.Join(err, e.Close())
		}
	}
	t.idle, t.n = nil, 0
	return err
}

func (t *Transport) base() http.RoundTripper {
	if t.Base == nil {
		return http.DefaultTransport
	}
	return t.Base
}

// RoundTrip implements http.RoundTripper.
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	put := writes(req.Method) && req.ContentLength > 0
	if t.Pool == nil || !put && req.Method != http.MethodGet || req.ContentLength > int64(t.Pool.size) {
		return t.base().RoundTrip(req)
	}
	via, err := t.via()
	if err != nil {
		closeBody(req)
		return nil, err
	}
	b, err := t.Pool.get(req.Context())
	if err != nil {
		if req.Context().Err() != nil {
			closeBody(req)
			return nil, err
		}
		return t.base().RoundTrip(req)
	}
	x := &offer{t: t, via: via, req: req, b: b, length: len(b.mem)}
	if put {
		x.length = int(req.ContentLength)
		_, err := io.ReadFull(req.Body, b.mem[:x.length])
		closeBody(req)
		if err != nil {
			b.release()
			return nil, fmt.Errorf("onesided: read the request's body: %w", err)
		}
	}
	return x.do()
}

func closeBody(req *http.Request) {
	if req.Body != nil {
		req.Body.Close()
	}
}

// via returns the transport of t.Service.
func (t *Transport) via() (transport, error) {
	if t.Service == "" {
		return transports[0], nil
	}
	return transportOf(t.Service)
}

// take returns an end for a request to a host, which is a new one of via if there is none.
func (t *Transport) take(host string, via transport) (end, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if ends := t.idle[host]; len(ends) > 0 {
		t.idle[host] = ends[:len(ends)-1]
		t.n--
		return ends[len(ends)-1], nil
	}
	return via.open(t.Pool)
}

// put keeps an end for the next request. There are at most as many as buffers.
func (t *Transport) put(host string, e end) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.n >= t.Pool.count {
		return e.Close()
	}
	if t.idle == nil {
		t.idle = map[string][]end{}
	}
	t.idle[host] = append(t.idle[host], e)
	t.n++
	return nil
}

// An offer is a request in progress at the client.
type offer struct {
	t      *Transport
	via    transport
	req    *http.Request
	b      *buffer
	length int // of the data, or of the room for it
	e      end
}

// maxTries covers a link that the server has closed, and the connection of a new one.
const maxTries = 3

func (x *offer) do() (*http.Response, error) {
	var err error
	if x.e, err = x.t.take(x.req.URL.Host, x.via); err != nil {
		return x.plain(x.b.release)
	}
	for range maxTries {
		var sent atomic.Int32
		probe := x.probes()
		resp, err := x.t.base().RoundTrip(x.request(&sent))
		if err != nil { // the server may be using the buffer
			x.revoke()
			return nil, err
		}
		if sent.Load() > 1 { // the server may still execute the first
			resp.Body.Close()
			return x.plain(x.revoke)
		}
		reply := resp.Header.Get(headerEndpoint)
		final := resp.StatusCode != http.StatusPreconditionRequired || reply == ""
		if final && !probe {
			return x.finish(resp)
		}
		resp.Body.Close()
		if final { // the server cannot use the token
			break
		}
		if x.e.connected() { // to a link that the server no longer has
			if err := x.e.Close(); err != nil {
				return x.plain(x.revoke)
			}
			if x.e, err = x.via.open(x.t.Pool); err != nil {
				return x.plain(x.b.release)
			}
		} else if err := x.e.connect(reply); err != nil {
			break
		}
	}
	return x.plain(x.revoke)
}

// revoke ends the server's access to the buffer.
func (x *offer) revoke() { x.b.revoke(x.e.Close) }

// probes reports whether the next request only asks for a connection. A server without a
// Handler would store an empty object for a PUT with a token.
func (x *offer) probes() bool { return writes(x.req.Method) && !x.e.connected() }

// request returns the request with a token in place of its body. It counts in sent how often it
// was sent: http.Transport repeats a GET if its connection was lost.
func (x *offer) request(sent *atomic.Int32) *http.Request {
	r := x.req.Clone(httptrace.WithClientTrace(x.req.Context(), &httptrace.ClientTrace{
		GotConn: func(httptrace.GotConnInfo) { sent.Add(1) },
	}))
	r.Header.Set(headerToken, Token{Transport: x.via.name(), Addr: x.b.mr.Addr(), Length: x.length,
		RKey: x.b.mr.RKey(), Peer: x.e.peer()}.String())
	switch {
	case !writes(r.Method):
	case x.probes():
		r.Method, r.Body, r.ContentLength, r.GetBody = http.MethodOptions, nil, 0, nil
	default:
		r.Header.Set(headerCRC, checksum(x.b.mem[:x.length]))
		r.Body, r.ContentLength, r.GetBody = http.NoBody, 0, nil
	}
	return r
}

// plain gives up the buffer and repeats the request over TCP.
func (x *offer) plain(giveUp func()) (*http.Response, error) {
	r := x.req.Clone(x.req.Context())
	if writes(r.Method) { // a RoundTripper may read the body after it has returned
		r.Body = io.NopCloser(bytes.NewReader(bytes.Clone(x.b.mem[:x.length])))
	}
	giveUp()
	return x.t.base().RoundTrip(r)
}

// finish checks the response and puts the data into its Body.
func (x *offer) finish(resp *http.Response) (*http.Response, error) {
	n, moved := Moved(resp)
	if !moved && Refused(resp) == "" { // a server that does not know tokens, or a proxy
		x.revoke()
		return resp, nil
	}
	if err := x.t.put(x.req.URL.Host, x.e); err != nil {
		x.b.revoke(func() error { return err })
		resp.Body.Close()
		return nil, err
	}
	switch {
	case !moved && writes(x.req.Method) && resp.StatusCode == http.StatusPreconditionRequired:
		resp.Body.Close()
		return x.plain(x.b.release)
	case !moved || writes(x.req.Method):
		x.b.release()
		return resp, nil
	case n > x.length:
		x.b.release()
		resp.Body.Close()
		return nil, ErrResponse
	case checksum(x.b.mem[:n]) != resp.Header.Get(headerCRC):
		x.b.release()
		resp.Body.Close()
		return nil, ErrChecksum
	}
	resp.Body.Close()
	resp.Body, resp.ContentLength = &Body{Reader: bytes.NewReader(x.b.mem[:n]), b: x.b, n: n}, int64(n)
	resp.Header.Set("Content-Length", strconv.Itoa(n))
	return resp, nil
}

// A Body is the body of a response that came by RDMA.
type Body struct {
	*bytes.Reader
	b    *buffer
	n    int
	once sync.Once
}

// Bytes returns the data where the device has written it. It is valid until Close.
func (b *Body) Bytes() []byte { return b.b.mem[:b.n:b.n] }

// Close releases the buffer. Neither the Body nor Bytes may be used afterwards.
func (b *Body) Close() error {
	b.once.Do(b.b.release)
	return nil
}
