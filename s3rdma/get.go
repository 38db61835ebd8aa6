package s3rdma

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/goverbs/goverbs/uverbs"
)

const (
	// firstWindow is the most that the first request of a GET asks for, as long as the length of the object is unknown.
	firstWindow = 1 << 20
	// growth is how much more each following request asks for, up to the window.
	growth = 4

	headerMode = "X-Amz-Checksum-Mode"
)

// A download is a GET in progress at the client. It consists of requests for parts of the object.
type download struct {
	t      *Transport
	r      *http.Request
	s      *signer
	want   span
	window int    // of the next request
	etag   string // of the object, from the first response on
	// head is the response to a HEAD, before the first part, and size the length of the object. RC only.
	head *http.Response
	size int64
}

func (t *Transport) get(r *http.Request, s *signer) (*http.Response, error) {
	want, ok := parseSpan(r.Header.Get("Range"))
	if !ok {
		return t.byHTTP(r, fmt.Errorf("s3rdma: the range %q is not of the form first-last", r.Header.Get("Range")))
	}
	d := &download{t: t, r: r, s: s, want: want, window: min(firstWindow, t.window())}
	if want.end >= 0 {
		d.window = t.window()
	}
	if t.Service == RC {
		if err := sessionQuery(r.URL); err != nil {
			return t.byHTTP(r, err)
		}
		if err := d.stat(); err != nil {
			return t.byHTTP(r, err)
		}
	}
	p, err := d.fetch(r.Context(), want.start)
	if err != nil {
		return nil, err
	}
	if p.why != nil {
		return d.declined(p)
	}
	return d.respond(p)
}

// A part is the response to a request for a part of the object.
type part struct {
	resp       *http.Response // nil if no request was sent
	why        error          // why the data has not come by RDMA
	start, end int64
	size       int64  // of the object
	data       []byte // by RDMA; nil otherwise
}

// fetch requests the part of the object that begins at start. It returns an error if there is no response.
func (d *download) fetch(ctx context.Context, start int64) (*part, error) {
	p := &part{start: start}
	n := d.window
	if d.want.end >= 0 {
		n = int(min(int64(n), d.want.end-start))
	}
	d.window = min(d.window*growth, d.t.window())
	b := d.t.take(n)
	if b == nil {
		p.why = fmt.Errorf("%w: %d bytes would exceed Transport.MaxMemory", ErrTooLarge, n)
		return p, nil
	}
	lost, err := d.move(ctx, p, b)
	if err != nil || p.why != nil {
		d.t.memory.put(b, lost)
		return p, err
	}
	p.data = b[:p.end-p.start]
	d.t.observe(d.r, p.end-p.start, nil)
	return p, nil
}

// move moves a part of the object to b. It sets p.why if the data has not come by RDMA. If lost is set, a device may
// still use the memory.
func (d *download) move(ctx context.Context, p *part, b []byte) (lost bool, err error) {
	if d.t.Service == RC {
		return d.moveRC(ctx, p, b)
	}
	clear(b) // a server may say that it has written, and has not: b has the data of an earlier request
	o, err := d.t.targets.offer(d.t.Device, d.r.URL.Host, d.t.key(), b, uverbs.RemoteWrite)
	if err != nil {
		p.why = err
		return false, nil
	}
	resp, ended, err := d.t.exchange(d.request(ctx, o, p.start, p.start+int64(len(b))))
	if eerr := o.end(ended); eerr != nil {
		if err == nil {
			discard(resp)
		}
		return true, eerr
	}
	if err != nil {
		return false, err
	}
	p.resp = resp
	if p.why = p.check(len(b), ended); p.why == nil {
		resp.Body.Close()
	}
	return false, nil
}

// request returns a signed request for a part of the object.
func (d *download) request(ctx context.Context, o *offer, start, end int64) *http.Request {
	r := offering(ctx, d.r, o.token())
	setRange(r.Header, start, end)
	if r.Header.Get("Accept-Encoding") == "" {
		r.Header.Set("Accept-Encoding", "identity")
	}
	if d.etag != "" {
		r.Header.Set("If-Match", d.etag)
	} else if !d.t.NoChecksum && d.want.whole {
		r.Header.Set(headerMode, "ENABLED")
	}
	d.s.sign(r)
	return r
}

// check returns why the response does not have the data by RDMA, or sets which part of the object it is. n is the
// length of the memory.
func (p *part) check(n int, ended bool) error {
	h := p.resp.Header
	reply := h.Get(headerReply)
	switch {
	case reply == "" || reply == declined:
		return reasonOf(p.resp)
	case !ended: // another server, or the same one, may still be writing
		return fmt.Errorf("%w: the connection was lost, and the request was sent twice", ErrProtocol)
	case reply != strconv.Itoa(p.resp.StatusCode) || reply != "200" && reply != "206":
		return fmt.Errorf("%w: %s of a GET with status %d is %.100q", ErrProtocol, headerReply, p.resp.StatusCode, reply)
	}
	moved, err := strconv.ParseUint(h.Get(headerBytes), 10, 32)
	if err != nil || moved > uint64(n) {
		return fmt.Errorf("%w: %s is %.100q, of %d that were offered", ErrProtocol, headerBytes, h.Get(headerBytes), n)
	}
	if reply == "200" && p.start == 0 { // the server ignores ranges
		p.end, p.size = int64(moved), int64(moved)
		return nil
	}
	start, end, size, ok := contentRange(h)
	if !ok || start != p.start || end-start != int64(moved) {
		return fmt.Errorf("%w: Content-Range %.100q, but %d bytes from offset %d by RDMA", ErrProtocol,
			h.Get("Content-Range"), moved, p.start)
	}
	p.end, p.size = end, size
	return nil
}

// declined returns a response by HTTP.
func (d *download) declined(p *part) (*http.Response, error) {
	d.t.observe(d.r, 0, p.why)
	if p.resp == nil {
		return d.t.base().RoundTrip(d.r)
	}
	if d.complete(p.resp) {
		return p.resp, nil
	}
	discard(p.resp)
	return d.t.base().RoundTrip(d.r)
}

// complete reports whether the response to the request for a part can be returned for the request of the caller.
func (d *download) complete(resp *http.Response) bool {
	if resp.Header.Get(headerReply) != "" && resp.Header.Get(headerReply) != declined {
		return false // the data is lost
	}
	switch resp.StatusCode {
	case http.StatusOK:
		return true // the server ignores ranges
	case http.StatusPartialContent:
		start, end, size, ok := contentRange(resp.Header)
		if !ok || start != d.want.start || end != size && end != d.want.end ||
			resp.ContentLength >= 0 && resp.ContentLength != end-start { // moved, but not said so
			return false
		}
		if d.want.whole {
			unrange(resp)
		}
		return true
	case http.StatusRequestedRangeNotSatisfiable:
		return !d.want.whole // an object without data has no range
	}
	return !repeats(resp.StatusCode)
}

// unrange makes a response one without a range.
func unrange(resp *http.Response) {
	resp.StatusCode, resp.Status = http.StatusOK, "200 OK"
	resp.Header.Del("Content-Range")
}

// respond returns the response to the caller's request, whose body begins with p.
func (d *download) respond(p *part) (*http.Response, error) {
	end := p.size
	if d.want.end >= 0 && p.resp.StatusCode == http.StatusPartialContent {
		end = min(end, d.want.end)
	}
	d.want.end = end
	if d.etag = p.resp.Header.Get("ETag"); strings.HasPrefix(d.etag, "W/") { // which If-Match never matches
		d.etag = ""
	}
	if p.end < end && d.etag == "" { // the parts may be of different objects
		d.t.memory.put(p.data, false)
		return d.t.byHTTP(d.r, fmt.Errorf("%w: an object of more than one part has no strong ETag", ErrProtocol))
	}
	resp := p.resp
	n := end - p.start
	resp.Header.Set("Content-Length", strconv.FormatInt(n, 10))
	resp.ContentLength = n
	if d.want.whole {
		unrange(resp)
	} else if resp.StatusCode == http.StatusPartialContent {
		resp.Header.Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", p.start, end-1, p.size))
	}
	resp.Request = d.r
	resp.Body = newBody(d, p, end, d.expected(resp))
	return resp, nil
}

// expected returns the checksum of the whole object, if the body is all of it.
func (d *download) expected(resp *http.Response) string {
	sum := resp.Header.Get(headerCRC64)
	if d.t.NoChecksum || !d.want.whole || strings.Contains(sum, "-") {
		return ""
	}
	return sum
}
