package s3rdma

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/minio/crc64nvme"

	"github.com/goverbs/goverbs/uverbs"
)

// emptyMD5 is the ETag of an object without data.
const emptyMD5 = "d41d8cd98f00b204e9800998ecf8427e"

// An upload is a PUT in progress at the client.
type upload struct {
	t    *Transport
	r    *http.Request // without the encoding of the body
	s    *signer
	data []byte
}

func (t *Transport) put(r *http.Request, s *signer) (*http.Response, error) {
	n := dataLength(r)
	if n > maxSize {
		return t.byHTTP(r, fmt.Errorf("%w: %d bytes, a descriptor names at most %d", ErrTooLarge, n, int64(maxSize)))
	}
	if t.Service != RC {
		if err := t.known(r, s); err != nil {
			return t.byHTTP(r, err)
		}
	}
	data := t.take(int(n))
	if data == nil {
		return t.byHTTP(r, fmt.Errorf("%w: %d bytes would exceed Transport.MaxMemory", ErrTooLarge, n))
	}
	u := &upload{t, r.Clone(r.Context()), s, data}
	err := u.read(r.Body)
	closeBody(r)
	if err != nil {
		t.memory.put(data, false)
		return nil, fmt.Errorf("s3rdma: read the request's body: %w", err)
	}
	return u.do()
}

// read reads the body, and changes the headers to those of the data alone.
func (u *upload) read(body io.Reader) error {
	if !isChunked(u.r.Header) {
		if _, err := io.ReadFull(body, u.data); err != nil {
			return err
		}
		switch _, err := io.ReadFull(body, make([]byte, 1)); err { // some readers check a sum at the end
		case io.EOF:
			return nil
		case nil:
			return fmt.Errorf("%w, which is %d", http.ErrContentLength, len(u.data))
		default:
			return err
		}
	}
	trailer, err := readChunked(body, u.data)
	if err != nil {
		return err
	}
	unchunk(u.r.Header, trailer)
	return nil
}

func (u *upload) do() (*http.Response, error) {
	if u.t.Service == RC {
		return u.doRC()
	}
	o, err := u.t.targets.offer(u.t.Device, u.r.URL.Host, u.t.key(), u.data, uverbs.RemoteRead)
	if err != nil {
		return u.plain(err)
	}
	r := offering(u.r.Context(), u.withChecksum(), o.token())
	u.s.sign(r)
	resp, ended, err := u.t.exchange(r)
	if eerr := o.end(ended); eerr != nil {
		u.t.memory.put(u.data, true)
		if err == nil {
			discard(resp)
		}
		return nil, eerr
	}
	if err != nil {
		u.t.memory.put(u.data, false)
		return nil, err
	}
	why := u.stored(resp, r.Header)
	if why == nil {
		u.t.observe(u.r, int64(len(u.data)), nil)
	}
	if why == nil || !repeats(resp.StatusCode) {
		u.t.memory.put(u.data, false)
		return resp, nil
	}
	if resp.Header.Get(headerReply) == "" {
		u.t.hosts.learn(u.r.URL.Host, false)
	}
	discard(resp)
	return u.plain(why)
}

// withChecksum returns the request with a checksum. It adds none if the client has one, or to a part: servers refuse
// one that the upload was not created for.
func (u *upload) withChecksum() *http.Request {
	if u.t.NoChecksum || announces(u.r.Header) || u.r.URL.Query().Has("uploadId") {
		return u.r
	}
	r := u.r.Clone(u.r.Context())
	r.Header.Set(headerCRC64, checksumText(crc64nvme.Checksum(u.data)))
	return r
}

func newBytesBody(b []byte) io.ReadCloser { return io.NopCloser(bytes.NewReader(b)) }

// stored returns why the server has not stored the data. The request had the headers sent.
func (u *upload) stored(resp *http.Response, sent http.Header) error {
	reply := resp.Header.Get(headerReply)
	if resp.StatusCode/100 != 2 || reply == declined {
		return reasonOf(resp)
	}
	if reply != "" {
		if reply != "200" && reply != "204" {
			return fmt.Errorf("%w: %s of a PUT is %.100q, want 200 or 204", ErrProtocol, headerReply, reply)
		}
		return nil
	}
	for _, name := range checksumHeaders(sent) { // which no object without data has
		if resp.Header.Get(name) == sent.Get(name) {
			return nil
		}
	}
	etag := strings.Trim(resp.Header.Get("ETag"), `"`)
	if u.t.AcceptETag && resp.StatusCode == http.StatusOK && etag != "" && etag != emptyMD5 {
		return nil
	}
	return reasonOf(resp)
}

// plain repeats the request by HTTP. The data is left to the garbage collector, since Base may read it after its reply.
func (u *upload) plain(why error) (*http.Response, error) {
	u.t.observe(u.r, 0, why)
	defer u.t.memory.put(u.data, true) // it counts until Base has sent it
	r := u.r.Clone(u.r.Context())
	r.Body, r.ContentLength, r.TransferEncoding, r.Trailer = newBytesBody(u.data), int64(len(u.data)), nil, nil
	r.GetBody = func() (io.ReadCloser, error) { return newBytesBody(u.data), nil }
	r.Header.Del("Content-Length")
	if r.Header.Get(headerSHA256) != "" {
		r.Header.Set(headerSHA256, fmt.Sprintf("%x", sha256.Sum256(u.data)))
	}
	u.s.sign(r)
	return u.t.base().RoundTrip(r)
}
