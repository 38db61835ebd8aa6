package s3rdma

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"

	"github.com/minio/crc64nvme"
)

// A body is the body of a response. One part of the object is read by the caller, and the next one is on its way.
type body struct {
	d      *download
	ctx    context.Context
	cancel context.CancelFunc

	mu   sync.Mutex // of what follows: Close may be called during a Read, and ends it
	end  int64      // of the data
	at   int64      // offset in the object of what is read next
	now  *part
	left []byte // of now
	next chan fetched
	err  error

	crc      uint64
	expected string // "": the sum is not computed
}

type fetched struct {
	p   *part
	err error
}

func newBody(d *download, first *part, end int64, expected string) *body {
	b := &body{d: d, end: end, at: first.start, now: first, left: first.data, expected: expected}
	b.ctx, b.cancel = context.WithCancel(d.r.Context())
	b.request(first.end)
	return b
}

// request begins to fetch the part at an offset, if there is one.
func (b *body) request(start int64) {
	b.next = nil
	if start >= b.end {
		return
	}
	next := make(chan fetched, 1)
	b.next = next
	go func() {
		p, err := b.d.fetch(b.ctx, start)
		next <- fetched{p, err}
	}()
}

// Read implements io.Reader. With the last byte it returns io.EOF, or an error that matches ErrChecksum if the server's
// checksum is another.
func (b *body) Read(to []byte) (n int, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.err == nil && b.at >= b.end { // an object without data
		b.err = b.finish()
	}
	if b.err != nil || len(to) == 0 {
		return 0, b.err
	}
	if n, err = b.read(to[:min(int64(len(to)), b.end-b.at)]); err != nil {
		b.err = err
		return n, err
	}
	if b.expected != "" {
		b.crc = crc64nvme.Update(b.crc, to[:n])
	}
	if b.at += int64(n); b.at >= b.end {
		b.err = b.finish()
	}
	return n, b.err
}

func (b *body) read(to []byte) (int, error) {
	if err := b.ctx.Err(); err != nil {
		return 0, context.Cause(b.ctx)
	}
	if b.now.data == nil {
		return b.readHTTP(to)
	}
	if len(b.left) == 0 {
		if err := b.advance(); err != nil {
			return 0, err
		}
		return b.read(to)
	}
	n := copy(to, b.left)
	b.left = b.left[n:]
	return n, nil
}

// advance waits for the next part.
func (b *body) advance() error {
	b.d.t.memory.put(b.now.data, false)
	b.now = &part{}
	f := <-b.next
	b.next = nil
	if f.err != nil {
		return f.err
	}
	b.now, b.left = f.p, f.p.data
	if f.p.why == nil {
		b.request(f.p.end)
		return nil
	}
	return b.fallBack()
}

// fallBack requests all that is left by HTTP, since the server has declined a part.
func (b *body) fallBack() error {
	d := b.d
	d.t.observe(d.r, 0, b.now.why)
	if b.now.resp != nil {
		discard(b.now.resp)
		b.now.resp = nil
	}
	r := d.r.Clone(b.ctx)
	setRange(r.Header, b.at, b.end)
	r.Header.Set("If-Match", d.etag)
	d.s.sign(r)
	resp, err := d.t.base().RoundTrip(r)
	if err != nil {
		return err
	}
	start, end, _, ok := contentRange(resp.Header)
	if resp.StatusCode != http.StatusPartialContent || !ok || start != b.at || end != b.end {
		discard(resp)
		return fmt.Errorf("%w: bytes %d to %d of the object: status %.100s, Content-Range %.100q", ErrProtocol, b.at, b.end,
			resp.Status, resp.Header.Get("Content-Range"))
	}
	b.now.resp = resp
	return nil
}

func (b *body) readHTTP(to []byte) (int, error) {
	n, err := b.now.resp.Body.Read(to)
	if err == io.EOF {
		err = nil
		if n == 0 {
			err = io.ErrUnexpectedEOF
		}
	}
	return n, err
}

// finish releases the memory, since some clients close a body late.
func (b *body) finish() error {
	b.release(b.now)
	b.now, b.left = &part{}, nil
	if b.expected != "" && checksumText(b.crc) != b.expected {
		return fmt.Errorf("%w: %s of %d bytes is %s, the server has %.100s", ErrChecksum, headerCRC64, b.end,
			checksumText(b.crc), b.expected)
	}
	return io.EOF
}

var errBodyClosed = errors.New("s3rdma: the body is closed")

// Close releases the memory of the body. It waits until the device uses none of it.
func (b *body) Close() error {
	b.cancel()
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.now != nil {
		b.release(b.now)
		b.now, b.left, b.err = nil, nil, errBodyClosed
	}
	if b.next == nil {
		return nil
	}
	f := <-b.next
	b.next = nil
	if f.err == nil {
		b.release(f.p)
		return nil
	}
	if errors.Is(f.err, context.Canceled) || errors.Is(f.err, context.DeadlineExceeded) {
		return nil // what was requested ahead is not needed
	}
	return f.err
}

// release releases what a part has.
func (b *body) release(p *part) {
	if p.data != nil {
		b.d.t.memory.put(p.data, false)
	} else if p.resp != nil {
		p.resp.Body.Close()
	}
}
