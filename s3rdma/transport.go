package s3rdma

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/goverbs/goverbs/uverbs"
)

const (
	defaultWindow    = 16 << 20
	defaultMaxMemory = 1 << 30
)

// A Transport is an [http.RoundTripper] for clients of S3. The data of objects that GetObject, PutObject and UploadPart
// move travels by RDMA, and everything else by HTTP. Objects that the server declines to move travel by HTTP too.
//
// A client opts in by its use of a Transport. A server that does not know the wire ignores the token, and would store
// an object without data for a PUT. So PUTs travel by HTTP until the server has replied to a token: that of a GET, or
// of a HEAD which the Transport sends before the first PUT to a host, and not more than once a minute. If a later PUT
// is stored without its data, because there is another server now, the Transport repeats it by HTTP, which replaces
// that object. A condition of the PUT, such as If-None-Match, then fails, and a PUT that is canceled in between leaves
// an object without data.
//
// The fields must not be changed after the first request. RoundTrip may be called from any number of goroutines.
type Transport struct {
	Base   http.RoundTripper // nil: http.DefaultTransport
	Device *Device           // nil: everything travels by HTTP
	// Secret returns the secret key of an access key. Signed requests are signed anew, since the token is part of the
	// signature. If Secret is nil, they travel by HTTP.
	Secret func(ctx context.Context, accessKey string) (secret string, err error)
	// Service is the transport service of the device: see [DC], the default, and [RC].
	Service Service
	// VirtualHosted says that URLs have the bucket in the host. Otherwise the first element of the path is the bucket.
	VirtualHosted bool
	// Window is the most that one request of a GET moves, in bytes; 0: 16 MiB. Longer objects are read in parts, one
	// ahead of the reader.
	Window int
	// MaxMemory limits the memory of all requests in progress, and of bodies that are not closed, in bytes; 0: 1 GiB.
	// Requests that would exceed it travel by HTTP.
	MaxMemory int64
	// DCKey is the access key of the client's DCTs; 0: the key of the wire, 0xffeeddcc. The server's must be the same.
	DCKey uint64
	// NoChecksum omits checksums. With them, PUTs of whole objects by RDMA have a CRC-64/NVME, unless the client has
	// another checksum, and so have GETs of whole objects if the server stores one.
	NoChecksum bool
	// AcceptETag says that the server knows the wire, so that no HEAD is sent, and that a PUT is complete if the response
	// has status 200 and the ETag of an object with data. Otherwise the response must have a reply header, or the
	// checksum of the data.
	AcceptETag bool
	// Observe is called after each transfer, and for each request of an object that travels by HTTP.
	Observe func(Transfer)

	targets targets
	memory  memory
	hosts   hosts
}

// A Service is a transport service, for which the wire has a form.
type Service string

const (
	// DC is the form for dynamically connected transport, which both ends' devices must have: ConnectX has it.
	DC Service = "dc"
	// RC is the form for reliable connections, which every device has. A transfer takes two more requests, and three for
	// the first part of a GET. It carries neither metadata nor conditions of a PUT, nor parts and versions of an object:
	// such requests travel by HTTP. URLs must have the bucket in the path. A canceled request may return a second later,
	// while it ends its session.
	RC Service = "rc"
)

// A Transfer is an event for programs that count or log.
type Transfer struct {
	Method, Path string
	Bytes        int64 // moved by RDMA
	RDMA         bool
	Err          error // why the data did not travel by RDMA
}

// Close releases what the requests have shared. Requests in progress go on, and later ones travel by HTTP. Close does
// not close Device.
func (t *Transport) Close() error { return t.targets.close() }

// CloseIdleConnections closes those of Base, for [http.Client.CloseIdleConnections].
func (t *Transport) CloseIdleConnections() {
	(&http.Client{Transport: t.base()}).CloseIdleConnections()
}

func (t *Transport) base() http.RoundTripper {
	if t.Base == nil {
		return http.DefaultTransport
	}
	return t.Base
}

func (t *Transport) window() int { return min(positiveOr(t.Window, defaultWindow), maxSize) }

func (t *Transport) take(n int) []byte {
	return t.memory.take(n, positiveOr(t.MaxMemory, defaultMaxMemory))
}

func (t *Transport) key() uint64 { return cmp.Or(t.DCKey, defaultDCKey) }

func (t *Transport) observe(r *http.Request, bytes int64, err error) {
	if t.Observe != nil {
		t.Observe(Transfer{Method: r.Method, Path: r.URL.Path, Bytes: bytes, RDMA: err == nil, Err: err})
	}
}

// RoundTrip implements [http.RoundTripper]. Its errors are those of Base, those of reading the request's body, and
// those of the device if it does not release memory.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	if !t.movesObject(r) {
		return t.base().RoundTrip(r)
	}
	s, err := t.signer(r)
	if err != nil {
		return t.byHTTP(r, err)
	}
	if r.Method == http.MethodGet {
		return t.get(r, s)
	}
	return t.put(r, s)
}

// byHTTP sends a request as it is.
func (t *Transport) byHTTP(r *http.Request, why error) (*http.Response, error) {
	t.observe(r, 0, why)
	return t.base().RoundTrip(r)
}

// ofObjects are the parameters of requests that move the data of an object.
var ofObjects = []string{"versionId", "partNumber", "uploadId", "x-id"}

// movesObject reports whether the request moves the data of an object, and may do so by RDMA.
func (t *Transport) movesObject(r *http.Request) bool {
	if r.Method != http.MethodGet && r.Method != http.MethodPut || !t.namesObject(r.URL) {
		return false
	}
	if !objectQuery(r.URL) {
		return false
	}
	query := r.URL.Query()
	if r.Method == http.MethodGet {
		return !query.Has("uploadId") && !query.Has("partNumber") && r.Header.Get("If-Range") == ""
	}
	return r.Header.Get("X-Amz-Copy-Source") == "" && dataLength(r) > 0
}

// objectQuery reports whether the parameters of a URL are of requests that move the data of an object.
func objectQuery(u *url.URL) bool {
	for name := range u.Query() {
		if !slices.Contains(ofObjects, name) && !strings.HasPrefix(name, "response-") {
			return false
		}
	}
	return true
}

func (t *Transport) namesObject(u *url.URL) bool {
	bucket, key, _ := strings.Cut(strings.TrimPrefix(u.Path, "/"), "/")
	if t.VirtualHosted {
		return bucket != ""
	}
	return bucket != "" && key != ""
}

// dataLength returns the length of the data in a request's body, or -1 if it is unknown.
func dataLength(r *http.Request) int64 {
	if !isChunked(r.Header) {
		return r.ContentLength
	}
	n, err := strconv.ParseInt(r.Header.Get(headerDecoded), 10, 64)
	if err != nil {
		return -1
	}
	return n
}

// A signer signs requests anew. A nil signer leaves them unsigned.
type signer struct {
	auth   authorization
	secret string
	skew   time.Duration // of the client's date: some correct the clock
}

var errNoSecret = errors.New("s3rdma: the request is signed, and Transport.Secret is nil")

// signer returns why a request cannot travel by RDMA, or what its successors are signed with.
func (t *Transport) signer(r *http.Request) (*signer, error) {
	text := r.Header.Get(headerAuth)
	switch {
	case t.Device == nil:
		return nil, errNoDevice
	case t.Service != "" && t.Service != DC && t.Service != RC:
		return nil, fmt.Errorf("%w: Transport.Service %q is neither %q nor %q", uverbs.ErrInvalid, t.Service, DC, RC)
	case t.Service == RC && t.VirtualHosted: // the first element of the key would be the bucket
		return nil, fmt.Errorf("%w: Transport.Service is %q and VirtualHosted is set: sessions need the bucket in the path",
			uverbs.ErrInvalid, RC)
	case text == "":
		return nil, nil
	case t.Secret == nil:
		return nil, errNoSecret
	}
	auth, ok := parseAuthorization(text)
	if !ok {
		return nil, fmt.Errorf("s3rdma: the request is not signed with %s", algorithm)
	}
	secret, err := t.Secret(r.Context(), auth.accessKey)
	if err != nil {
		return nil, fmt.Errorf("s3rdma: the secret of access key %q: %w", auth.accessKey, err)
	}
	var skew time.Duration
	if date, err := time.Parse(timeFormat, r.Header.Get(headerDate)); err == nil {
		skew = time.Until(date)
	}
	return &signer{auth, secret, skew}, nil
}

func (s *signer) sign(r *http.Request) {
	if s != nil {
		s.auth.sign(r, s.secret, time.Now().Add(s.skew))
	}
}

// offering returns a request without a body that has a token. The caller may change it, and then signs it.
func offering(ctx context.Context, r *http.Request, token Token) *http.Request {
	r = r.Clone(ctx)
	r.Body, r.GetBody, r.ContentLength, r.TransferEncoding, r.Trailer = http.NoBody, nil, 0, nil, nil
	r.Header.Del("Content-Length")
	r.Header.Del("Expect")
	r.Header.Set(headerSHA256, unsignedPayload)
	r.Header.Set(headerToken, token.String())
	return r
}

// exchange sends a request with a token. If it is not ended, the server may still use the token.
func (t *Transport) exchange(r *http.Request) (resp *http.Response, ended bool, err error) {
	var sent atomic.Int32 // http.Transport repeats a GET if its connection was lost
	trace := &httptrace.ClientTrace{WroteHeaders: func() { sent.Add(1) }}
	resp, err = t.base().RoundTrip(r.WithContext(httptrace.WithClientTrace(r.Context(), trace)))
	if err == nil && resp.Header.Get(headerReply) != "" {
		t.hosts.learn(r.URL.Host, true)
	}
	return resp, err == nil && sent.Load() <= 1, err
}

// reasonOf returns why a server has not moved the data, with the beginning of its own words.
func reasonOf(resp *http.Response) error {
	return fmt.Errorf("%w: status %.100s, %s %.100q", ErrDeclined, resp.Status, headerReply, resp.Header.Get(headerReply))
}

// repeats reports whether a request that was declined with an error is worth a repetition by HTTP.
func repeats(status int) bool {
	return status/100 == 2 || status == http.StatusBadRequest || status >= http.StatusInternalServerError
}

// mostDrained is how much of a response is read so that its connection can be used again.
const mostDrained = 64 << 10

func discard(resp *http.Response) {
	io.CopyN(io.Discard, resp.Body, mostDrained) // an error only means that the connection is not used again
	resp.Body.Close()
}

func closeBody(r *http.Request) {
	if r.Body != nil {
		r.Body.Close()
	}
}
