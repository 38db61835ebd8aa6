package s3rdma

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/goverbs/goverbs/uverbs"
)

const (
	// grace is how long a client waits with the data of a PUT if it does not notice that its second request was sent.
	grace = 100 * time.Millisecond
	// lateTime is how long data may come after the server has said that it was sent.
	lateTime = time.Second
	// cancelTime limits the request that ends a session.
	cancelTime = time.Second
)

// A conversation is a transfer by reliable connection at the client.
type conversation struct {
	t      *Transport
	r      *http.Request // on the object
	s      *signer
	op     string
	offset int64
	end    *rcEnd
	cookie uint32

	id     string // of the session, once there is one
	peer   rcToken
	result http.Header // of the second response
}

// converse moves b, which is part of the object that r names. It returns why the data has not moved. If lost is set, a
// device may still use the memory.
func (t *Transport) converse(ctx context.Context, r *http.Request, s *signer, b []byte, offset int64) (h http.Header,
	lost bool, why error) {
	var right uverbs.Access
	if r.Method == http.MethodGet {
		right = uverbs.RemoteWrite
	}
	if len(b) > rcMaxSize {
		return nil, false, fmt.Errorf("%w: %d bytes, a session moves at most %d", ErrTooLarge, len(b), rcMaxSize)
	}
	if err := t.targets.check(); err != nil {
		return nil, false, err
	}
	end, err := newRCEnd(t.Device, b, right)
	if err != nil {
		return nil, false, err
	}
	var random [4]byte
	rand.Read(random[:]) // never fails
	c := &conversation{t: t, r: r, s: s, op: r.Method, offset: offset, end: end,
		cookie: max(binary.NativeEndian.Uint32(random[:]), 1)}
	why = c.run(ctx)
	cerr := end.close()
	if why != nil && c.id != "" {
		c.cancel()
	}
	return c.result, cerr != nil, errors.Join(why, cerr)
}

func (c *conversation) run(ctx context.Context) error {
	psn, err := c.prepare(ctx)
	if err != nil {
		return err
	}
	if err := c.end.connect(c.peer, psn); err != nil {
		return fmt.Errorf("%w: no connection to the server: %w", ErrTransfer, err)
	}
	return c.ready(ctx)
}

// control returns a signed control request.
func (c *conversation) control(ctx context.Context, path string, pairs ...string) *http.Request {
	u := &url.URL{Scheme: c.r.URL.Scheme, Host: c.r.URL.Host, Path: path}
	r := &http.Request{Method: http.MethodPost, URL: u, Host: c.r.Host, Header: http.Header{}, Body: http.NoBody}
	for _, name := range append(digests(c.r.Header), "X-Amz-Security-Token", "User-Agent") {
		if v := c.r.Header.Get(name); v != "" {
			r.Header.Set(name, v)
		}
	}
	r.Header.Set(headerSHA256, unsignedPayload)
	r.Header.Set(headerProtocol, rcProtocol)
	for i := 0; i < len(pairs); i += 2 {
		r.Header.Set(pairs[i], pairs[i+1])
	}
	c.s.sign(r)
	return r.WithContext(ctx)
}

// prepare sends the first request. It returns the server's PSN.
func (c *conversation) prepare(ctx context.Context) (psn uint32, err error) {
	target := (&url.URL{Path: c.r.URL.Path, RawPath: c.r.URL.RawPath, RawQuery: c.r.URL.RawQuery}).RequestURI()
	resp, err := c.t.base().RoundTrip(c.control(ctx, rcPrepare, headerToken, c.end.token().String(), headerPSN,
		formatPSN(c.end.local.PSN), headerCookie, formatCookie(c.cookie), headerOp, c.op, headerTarget, target,
		headerSize, strconv.Itoa(c.end.mr.Len()), headerOffset, strconv.FormatInt(c.offset, 10)))
	if err != nil {
		return 0, err
	}
	defer discard(resp)
	h := resp.Header
	c.id = h.Get(headerSession)
	text, ok := strings.CutPrefix(h.Get(headerReply), rcReplyOK)
	if resp.StatusCode != http.StatusOK || h.Get(headerProtocol) != rcProtocol || !ok {
		return 0, reasonOf(resp)
	}
	if len(c.id) != sessionDigits {
		return 0, fmt.Errorf("%w: the session %.100q has not %d digits", ErrProtocol, c.id, sessionDigits)
	}
	if c.peer, err = parseRCToken(text); err != nil {
		return 0, err
	}
	psn64, err := hexHeader(h, headerPSN, maxQPN)
	if err != nil || c.op == http.MethodGet {
		return uint32(psn64), err
	}
	addr, err1 := hexHeader(h, headerMRAddr, 1<<64-1)
	rkey, err2 := hexHeader(h, headerMRKey, 1<<32-1)
	c.peer.addr, c.peer.rkey = addr, uint32(rkey)
	return uint32(psn64), errors.Join(err1, err2)
}

var errLate = fmt.Errorf("%w: the server has replied, and %v later its data has not arrived", ErrProtocol, lateTime)

// ready sends the second request, during which the data moves.
func (c *conversation) ready(ctx context.Context) error {
	moving, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	asking, drop := context.WithCancel(ctx)
	defer drop()
	wrote := make(chan struct{})
	var once sync.Once
	sent := func() { once.Do(func() { close(wrote) }) }
	replied := make(chan error, 1)
	go func() {
		trace := &httptrace.ClientTrace{WroteRequest: func(httptrace.WroteRequestInfo) { sent() }}
		err := c.finish(httptrace.WithClientTrace(asking, trace))
		if err != nil {
			stop(err) // no data moves any more
		} else {
			time.AfterFunc(lateTime, func() { stop(errLate) })
		}
		sent()
		replied <- err
	}()
	err := c.move(moving, wrote)
	if err != nil && moving.Err() == nil {
		drop() // the server would wait for the data
	}
	if rerr := <-replied; err == nil || moving.Err() != nil && rerr != nil {
		return rerr
	}
	return err
}

// move waits for the data of a GET, or sends that of a PUT. Packets that arrive before the server is ready are sent
// again.
func (c *conversation) move(ctx context.Context, wrote <-chan struct{}) error {
	if c.op == http.MethodGet {
		return c.end.written(ctx, c.cookie)
	}
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-wrote:
	case <-timer.C:
	}
	return c.end.write(ctx, c.peer.addr, c.peer.rkey, c.cookie)
}

// finish sends the second request and checks the response.
func (c *conversation) finish(ctx context.Context) error {
	resp, err := c.t.base().RoundTrip(c.control(ctx, rcReady, headerSession, c.id, headerCookie, formatCookie(c.cookie),
		headerQPN, formatHex(c.end.local.QPN), headerMRAddr, formatHex(c.end.mr.Addr()), headerMRKey,
		formatHex(c.end.mr.RKey())))
	if err != nil {
		return err
	}
	defer discard(resp)
	h := resp.Header
	if resp.StatusCode != http.StatusOK && (c.op == http.MethodGet || resp.StatusCode != http.StatusNoContent) {
		return reasonOf(resp)
	}
	cookie, err1 := hexHeader(h, headerCookie, 1<<32-1) // some servers send uppercase digits
	n, err2 := numberHeader(h, headerBytes, 10, 0, rcMaxSize)
	if h.Get(headerProtocol) != rcProtocol || err1 != nil || err2 != nil || uint32(cookie) != c.cookie ||
		int(n) != c.end.mr.Len() {
		return fmt.Errorf("%w: protocol %.100q, cookie %.100q, %.100q bytes; want %s, %08x, %d", ErrProtocol,
			h.Get(headerProtocol), h.Get(headerCookie), h.Get(headerBytes), rcProtocol, c.cookie, c.end.mr.Len())
	}
	c.result, c.id = h, ""
	return nil
}

// cancel ends the session at the server, if it can.
func (c *conversation) cancel() {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.r.Context()), cancelTime)
	defer cancel()
	if resp, err := c.t.base().RoundTrip(c.control(ctx, rcCancel, headerSession, c.id)); err == nil {
		discard(resp)
	}
}

// stat requests the length of the object and the headers of the response, which sessions do not have.
func (d *download) stat() error {
	r := d.r.Clone(d.r.Context())
	r.Method = http.MethodHead
	r.Header.Del("Range")
	d.s.sign(r)
	resp, err := d.t.base().RoundTrip(r)
	if err != nil {
		return err
	}
	resp.Body.Close()
	d.head, d.size = resp, resp.ContentLength
	if resp.StatusCode != http.StatusOK || d.want.start >= d.size {
		return fmt.Errorf("%w: status %s, %d bytes", ErrDeclined, resp.Status, d.size)
	}
	if d.want.end < 0 || d.want.end > d.size {
		d.want.end = d.size
	}
	d.window = d.t.window()
	d.etag = resp.Header.Get("ETag")
	if !d.want.whole {
		resp.StatusCode, resp.Status = http.StatusPartialContent, "206 Partial Content"
	}
	return nil
}

// moveRC is move by reliable connection.
func (d *download) moveRC(ctx context.Context, p *part, b []byte) (lost bool, err error) {
	h, lost, why := d.t.converse(ctx, d.r, d.s, b, p.start)
	switch {
	case lost || ctx.Err() != nil && why != nil:
		return lost, why
	case why != nil:
	case !sameETag(h.Get(headerETag), d.etag):
		why = fmt.Errorf("%w: the ETag of the object has changed from %.100s to %.100s", ErrProtocol, d.etag,
			h.Get(headerETag))
	}
	p.resp, p.why, p.end, p.size = d.head, why, p.start+int64(len(b)), d.size
	if why != nil {
		p.resp = nil // it is not one of the caller's request
	}
	return false, nil
}

// sameETag compares ETags, of which some servers omit the quotes.
func sameETag(a, b string) bool { return a != "" && strings.Trim(a, `"`) == strings.Trim(b, `"`) }

// carries are the headers of PUTs that a session replaces or carries.
var carries = []string{"Authorization", "Content-Length", "Accept-Encoding", "User-Agent", "Expect", "Amz-Sdk-Request",
	"Amz-Sdk-Invocation-Id", headerDate, headerSHA256, headerDecoded, headerTrailer, "X-Amz-Security-Token",
	"X-Amz-Sdk-Checksum-Algorithm", "X-Amz-Checksum-Algorithm",
	"X-Amz-Checksum-Type"}

// sessionQuery returns an error if the URL selects a part or a version of an object. The published server of this form
// drops the query of a target, and would replace the object by the part.
func sessionQuery(u *url.URL) error {
	for _, name := range []string{"uploadId", "partNumber", "versionId"} {
		if u.Query().Has(name) {
			return fmt.Errorf("s3rdma: %s has no place for %s", rcProtocol, name)
		}
	}
	return nil
}

// carried returns an error if a session does not have all that the PUT says about the object.
func (u *upload) carried() error {
	if err := sessionQuery(u.r.URL); err != nil {
		return err
	}
	h := u.r.Header.Clone()
	for _, name := range append(digests(h), carries...) {
		h.Del(name)
	}
	if t := h.Get("Content-Type"); t == "application/octet-stream" || t == "binary/octet-stream" {
		h.Del("Content-Type")
	}
	for name := range h {
		return fmt.Errorf("s3rdma: %s has no place for the header %s", rcProtocol, name)
	}
	return nil
}

// doRC is do by reliable connection.
func (u *upload) doRC() (*http.Response, error) {
	if err := u.carried(); err != nil {
		return u.plain(err)
	}
	h, lost, why := u.t.converse(u.r.Context(), u.withChecksum(), u.s, u.data, 0)
	if lost || why != nil && u.r.Context().Err() != nil {
		u.t.memory.put(u.data, lost)
		return nil, why
	}
	if why != nil {
		return u.plain(why)
	}
	u.t.observe(u.r, int64(len(u.data)), nil)
	u.t.memory.put(u.data, false)
	resp := &http.Response{Status: "200 OK", StatusCode: http.StatusOK, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{}, Body: http.NoBody, Request: u.r}
	resp.Header.Set(headerReply, "200")
	if etag := strings.Trim(h.Get(headerETag), `"`); etag != "" {
		resp.Header.Set("ETag", `"`+etag+`"`)
	}
	if v := h.Get(headerVersion); v != "" {
		resp.Header.Set("X-Amz-Version-Id", v)
	}
	return resp, nil
}
