package s3rdma_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/signer"

	"github.com/goverbs/goverbs/s3rdma"
	"github.com/goverbs/goverbs/uverbs"
	"github.com/goverbs/goverbs/verbstest"
)

// A page is a server of one object without ETags, signatures and ranges, which write sends.
func page(write func(w http.ResponseWriter, data []byte), data []byte) func(*rig) {
	return func(r *rig) {
		r.handler.Next = http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
			if q.Method == http.MethodGet && strings.HasSuffix(q.URL.Path, "/page") {
				write(w, data)
				return
			}
			r.plain.ServeHTTP(w, q)
		})
		r.serveBy(r.handler.ServeHTTP)
	}
}

// open requests an object without minio-go.
func (r *rig) open(path string) (resp *http.Response, err error) {
	r.Helper()
	r.onClient(func() {
		resp, err = r.transport.RoundTrip(must(http.NewRequestWithContext(r.ctx, http.MethodGet, r.url+path, nil))(r))
	})
	return resp, err
}

// fetch reads the page.
func (r *rig) fetch() (*http.Response, []byte, error) {
	r.Helper()
	resp, err := r.open("/" + bucket + "/page")
	if err != nil {
		return nil, nil, err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	return resp, data, err
}

// TestWriters has handlers that write their responses in various ways.
func TestWriters(t *testing.T) {
	length := func(w http.ResponseWriter, n int) { w.Header().Set("Content-Length", strconv.Itoa(n)) }
	pieces := func(w http.ResponseWriter, data []byte) {
		for len(data) > 0 {
			n := min(len(data), 7777)
			w.Write(data[:n])
			if f, ok := w.(http.Flusher); ok {
				f.Flush()
			}
			data = data[n:]
		}
	}
	known := func(w http.ResponseWriter, data []byte) { length(w, len(data)); pieces(w, data) }
	for name, c := range map[string]struct {
		size  int
		rdma  bool
		write func(w http.ResponseWriter, data []byte)
	}{
		"at once":          {300_000, true, func(w http.ResponseWriter, data []byte) { length(w, len(data)); w.Write(data) }},
		"in pieces":        {300_000, true, known},
		"short, no length": {200_000, true, pieces},
		"long, no length":  {300_000, false, pieces},
		"too long":         {2 << 20, false, known},
		"nothing":          {0, true, func(w http.ResponseWriter, data []byte) { length(w, 0) }},
		"only a header":    {0, true, func(w http.ResponseWriter, data []byte) { w.WriteHeader(http.StatusOK) }},
		"early hints": {1000, true, func(w http.ResponseWriter, data []byte) {
			w.WriteHeader(http.StatusEarlyHints)
			w.Write(data)
		}},
		"ReadFrom": {300_000, true, func(w http.ResponseWriter, data []byte) {
			length(w, len(data))
			io.Copy(w, struct{ io.Reader }{bytes.NewReader(data)})
		}},
		"ReadFrom, no length": {300_000, false, func(w http.ResponseWriter, data []byte) {
			io.Copy(w, struct{ io.Reader }{bytes.NewReader(data)})
		}},
		"deadline": {1000, true, func(w http.ResponseWriter, data []byte) {
			if err := http.NewResponseController(w).EnableFullDuplex(); err != nil {
				panic(err)
			}
			w.Write(data)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			data := randomBytes(c.size)
			r := newRig(t, s3rdma.DC, page(c.write, data))
			resp, got, err := r.fetch()
			if err != nil || resp.StatusCode != http.StatusOK || !bytes.Equal(got, data) {
				t.Errorf("%v, %d of %d bytes, or other ones: %v", resp, len(got), len(data), err)
			}
			if n, why := r.got.byRDMA(); c.rdma != (len(why) == 0) || c.rdma && n != int64(len(data)) {
				t.Errorf("%d bytes by RDMA, %v", n, why)
			}
			r.released()
		})
	}
}

// TestBrokenWriters has handlers whose responses are not what their headers say. The client gets an error, and never
// part of the data as a whole object.
func TestBrokenWriters(t *testing.T) {
	for name, write := range map[string]func(w http.ResponseWriter, data []byte){
		"too little": func(w http.ResponseWriter, data []byte) {
			w.Header().Set("Content-Length", strconv.Itoa(len(data)))
			w.Write(data[1:])
		},
		"too much": func(w http.ResponseWriter, data []byte) {
			w.Header().Set("Content-Length", strconv.Itoa(len(data)-1))
			w.Write(data)
		},
		"something": func(w http.ResponseWriter, data []byte) { w.Header().Set("Content-Length", "0"); w.Write(data) },
		"abort": func(w http.ResponseWriter, data []byte) {
			w.Header().Set("Content-Length", strconv.Itoa(len(data)))
			w.Write(data[1:])
			panic(http.ErrAbortHandler)
		},
	} {
		t.Run(name, func(t *testing.T) {
			data := randomBytes(300_000)
			r := newRig(t, s3rdma.DC, page(write, data))
			resp, got, err := r.fetch()
			if err == nil && len(got) == len(data) {
				t.Errorf("%v: the data is complete", resp)
			}
			if n, _ := r.got.byRDMA(); n != 0 {
				t.Errorf("%d bytes by RDMA", n)
			}
			r.released()
		})
	}
}

// TestVirtualHosted has URLs without the bucket in their path.
func TestVirtualHosted(t *testing.T) {
	for virtual, want := range map[bool]int64{true: 1000, false: 0} {
		r := newRig(t, s3rdma.DC, page(func(w http.ResponseWriter, data []byte) { w.Write(data) }, randomBytes(1000)),
			func(r *rig) { r.transport.VirtualHosted = virtual })
		resp := must(r.open("/page"))(t)
		must(io.ReadAll(resp.Body))(t)
		resp.Body.Close()
		if n, _ := r.got.byRDMA(); n != want {
			t.Errorf("%v: %d bytes by RDMA, want %d", virtual, n, want)
		}
	}
}

// TestVirtualHostedSession has a client of sessions, which need the bucket in the path. Its requests travel by HTTP.
func TestVirtualHostedSession(t *testing.T) {
	r := newRig(t, s3rdma.RC, func(r *rig) { r.transport.VirtualHosted = true })
	data := randomBytes(1000)
	must(r.put("a", data, minio.PutObjectOptions{}))(t)
	r.same("a", data)
	if n, why := r.got.byRDMA(); n != 0 || len(why) != 2 || !errors.Is(why[0], uverbs.ErrInvalid) {
		t.Errorf("%d bytes by RDMA, %v", n, why)
	}
}

// TestCloseIdleConnections closes the connections of Base through an http.Client.
func TestCloseIdleConnections(t *testing.T) {
	r := newRig(t, s3rdma.DC)
	closed := make(chan bool, 1)
	r.transport.Base = closer{r.base, closed}
	(&http.Client{Transport: r.transport}).CloseIdleConnections()
	select {
	case <-closed:
	default:
		t.Error("the connections of Base are open")
	}
}

type closer struct {
	http.RoundTripper
	closed chan<- bool
}

func (c closer) CloseIdleConnections() { c.closed <- true }

// TestClose closes bodies before their end: while nothing is read, during a Read, and twice.
func TestClose(t *testing.T) {
	forms(t, func(r *rig) {
		data := randomBytes(300_000)
		must(r.put("a", data, minio.PutObjectOptions{}))(r)
		for i := range 6 {
			resp := must(r.open("/" + bucket + "/a"))(r)
			must(io.ReadFull(resp.Body, make([]byte, 1+i*9_997)))(r)
			read := make(chan error, 1)
			go func() {
				_, err := io.Copy(io.Discard, resp.Body)
				read <- err
			}()
			if i%2 == 0 {
				<-read
			}
			check(r, errors.Join(resp.Body.Close(), resp.Body.Close()))
			if _, err := resp.Body.Read(make([]byte, 1)); err == nil {
				r.Error("Read after Close returns no error")
			}
			if i%2 == 1 {
				<-read
			}
		}
		r.abandoned()
	}, func(r *rig) {
		r.transport.Window = 50_000
		r.handler.Next = r.plain
		r.serveBy(r.handler.ServeHTTP)
	})
}

// TestFlush has handlers that send the header of a PUT whose data they have not read in other ways than WriteHeader.
func TestFlush(t *testing.T) {
	for name, send := range map[string]func(w http.ResponseWriter){
		"flush":      func(w http.ResponseWriter) { w.(http.Flusher).Flush() },
		"controller": func(w http.ResponseWriter) { http.NewResponseController(w).Flush() },
		"hijack": func(w http.ResponseWriter) {
			if c, _, err := http.NewResponseController(w).Hijack(); err == nil {
				io.WriteString(c, "HTTP/1.1 200 OK\r\nETag: \"1\"\r\nContent-Length: 0\r\n\r\n")
				c.Close()
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, s3rdma.DC, func(r *rig) {
				r.transport.AcceptETag, r.transport.NoChecksum = true, true
				r.handler.Next = http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
					if q.Header.Get("X-Amz-Rdma-Token") == "" {
						r.plain.ServeHTTP(w, q)
						return
					}
					w.Header().Set("ETag", `"1"`)
					send(w)
				})
				r.serveBy(r.handler.ServeHTTP)
			})
			data := randomBytes(1000)
			must(r.put("a", data, minio.PutObjectOptions{}))(t)
			if n, why := r.got.byRDMA(); n != 0 || len(why) != 1 {
				t.Errorf("%d bytes by RDMA, which the server has not read: %v", n, why)
			}
			r.released()
		})
	}
}

// TestTimeoutOfNext checks that Handler.Timeout does not limit the context of the request that Next sees.
func TestTimeoutOfNext(t *testing.T) {
	forms(t, func(r *rig) {
		var stored, limited atomic.Int32
		r.handler.Next = http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
			if q.Method == http.MethodPut && moving(q) {
				stored.Add(1)
				if _, ok := q.Context().Deadline(); ok {
					limited.Add(1)
				}
			}
			r.plain.ServeHTTP(w, q)
		})
		must(r.put("a", randomBytes(1000), minio.PutObjectOptions{}))(r)
		r.moved(1000)
		if stored.Load() != 1 || limited.Load() != 0 {
			r.Errorf("%d PUTs, %d of them with a deadline", stored.Load(), limited.Load())
		}
	})
}

// TestNoContent has a handler that replies to a PUT with status 204.
func TestNoContent(t *testing.T) {
	var got bytes.Buffer
	r := newRig(t, s3rdma.DC, func(r *rig) {
		r.handler.Next = http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
			if q.Method != http.MethodPut || q.Header.Get("X-Amz-Rdma-Token") == "" {
				r.plain.ServeHTTP(w, q)
				return
			}
			n, err := io.Copy(&got, q.Body)
			if err != nil || n != q.ContentLength || q.Header.Get("Content-Length") != fmt.Sprint(n) {
				r.Errorf("%d of %d bytes, %v", n, q.ContentLength, err)
			}
			w.WriteHeader(http.StatusNoContent)
		})
		r.serveBy(r.handler.ServeHTTP)
	})
	data := randomBytes(1 << 20)
	r.put("a", data, minio.PutObjectOptions{}) // minio-go wants another status
	if n, why := r.got.byRDMA(); n != int64(len(data)) || why != nil || !bytes.Equal(got.Bytes(), data) {
		t.Errorf("%d bytes by RDMA, %v, and %d at the server", n, why, got.Len())
	}
}

// TestReaders has handlers that do not read the body of a PUT, or only a part.
func TestReaders(t *testing.T) {
	for name, read := range map[string]func(body io.ReadCloser){
		"nothing": func(io.ReadCloser) {},
		"a part":  func(body io.ReadCloser) { io.CopyN(io.Discard, body, 1000) },
		"most":    func(body io.ReadCloser) { io.CopyN(io.Discard, body, 1<<20-1) },
		"close":   func(body io.ReadCloser) { body.Close(); io.Copy(io.Discard, body) },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, s3rdma.DC, func(r *rig) {
				r.handler.Next = http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
					if q.Header.Get("X-Amz-Rdma-Token") != "" {
						read(q.Body)
						return // with status 200
					}
					r.plain.ServeHTTP(w, q)
				})
				r.serveBy(r.handler.ServeHTTP)
			})
			data := randomBytes(1 << 20)
			must(r.put("a", data, minio.PutObjectOptions{}))(t)
			if n, why := r.got.byRDMA(); n != 0 || len(why) != 1 {
				t.Errorf("%d bytes by RDMA, %v", n, why)
			}
			var got bytes.Buffer
			w := &buffer{recorder{http.Header{}}, &got}
			r.plain.ServeHTTP(w, must(http.NewRequest(http.MethodGet, "/"+bucket+"/a", nil))(t))
			if !bytes.Equal(got.Bytes(), data) {
				t.Errorf("the server has stored %d bytes, want %d", got.Len(), len(data))
			}
			r.released()
		})
	}
}

type buffer struct {
	recorder
	*bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) { return b.Buffer.Write(p) }

// TestChanged replaces an object between the requests of a GET. The client gets an error, not a mixture.
func TestChanged(t *testing.T) {
	forms(t, func(r *rig) {
		one, two := randomBytes(300_000), make([]byte, 300_000)
		must(r.put("a", one, minio.PutObjectOptions{}))(r)
		r.onClient(func() {
			o := must(r.minio.GetObject(r.ctx, bucket, "a", minio.GetObjectOptions{}))(r)
			defer o.Close()
			must(io.ReadFull(o, make([]byte, 10)))(r)
			must(r.put("a", two, minio.PutObjectOptions{}))(r)
			rest, err := io.ReadAll(o)
			if !errors.Is(err, s3rdma.ErrProtocol) || bytes.Contains(rest, two[:100]) {
				r.Errorf("%d bytes, %v", len(rest), err)
			}
		})
		r.same("a", two)
	}, func(r *rig) { r.transport.Window = 10_000 })
}

// TestPartDeclined has a server that declines the third part of a GET. The rest travels by HTTP.
func TestPartDeclined(t *testing.T) {
	r := newRig(t, s3rdma.DC, func(r *rig) {
		r.transport.Window = 10_000
		var n int
		r.transport.Base = tap{RoundTripper: r.base, request: func(q *http.Request) {
			if q.Method == http.MethodGet && q.Header.Get("X-Amz-Rdma-Token") != "" {
				if n++; n > 2 {
					q.Header.Set("X-Amz-Rdma-Token", "none")
				}
			}
		}}
		unsigned(r)
	})
	data := randomBytes(100_000)
	must(r.put("a", data, minio.PutObjectOptions{}))(t)
	r.got.take()
	r.same("a", data)
	if n, reasons := r.got.byRDMA(); n != 20_000 || len(reasons) != 1 {
		t.Errorf("%d bytes by RDMA, %v", n, reasons)
	}
	r.released()
}

// TestChain has a server with a Handler behind a proxy that has one too. The one behind moves the data of a GET.
func TestChain(t *testing.T) {
	data := randomBytes(3000)
	for name, whole := range map[string]bool{"ranges": false, "no ranges": true} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, s3rdma.DC, page(nil, data))
			inner := &s3rdma.Handler{Device: r.handler.Device, Next: http.HandlerFunc(
				func(w http.ResponseWriter, q *http.Request) {
					if whole {
						q.Header.Del("Range")
					}
					http.ServeContent(w, q, "", time.Time{}, bytes.NewReader(data))
				})}
			server := httptest.NewServer(inner)
			defer func() { server.Close(); check(t, inner.Close()) }()
			proxy := httputil.NewSingleHostReverseProxy(must(url.Parse(server.URL))(t))
			base := &http.Transport{}
			defer base.CloseIdleConnections()
			proxy.Transport = base
			r.handler.Next = proxy
			if _, got, err := r.fetch(); err != nil || !bytes.Equal(got, data) {
				t.Errorf("%d of %d bytes, %v", len(got), len(data), err)
			}
			r.behind(len(data))
			r.released()
		})
	}
}

// behind checks how much the client has received by RDMA from a server behind the Handler.
func (r *rig) behind(want int) {
	r.Helper()
	if n, why := r.got.byRDMA(); n != int64(want) || why != nil {
		r.Errorf("%d of %d bytes by RDMA, %v", n, want, why)
	}
	if n, _ := r.served.byRDMA(); n != 0 {
		r.Errorf("the Handler in front has moved %d bytes", n)
	}
}

// TestWeakETag has an object of several parts, whose ETag does not match in a condition. It travels by HTTP.
func TestWeakETag(t *testing.T) {
	data := randomBytes(300_000)
	forms(t, func(r *rig) {
		if _, got, err := r.fetch(); err != nil || !bytes.Equal(got, data) {
			r.Errorf("%d of %d bytes, %v", len(got), len(data), err)
		}
		r.released()
	}, page(nil, data), func(r *rig) {
		r.transport.Window = 100_000
		r.handler.Next = http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
			w.Header().Set("ETag", `W/"1"`)
			http.ServeContent(w, q, "", time.Time{}, bytes.NewReader(data))
		})
	})
}

// TestWrongChecksum reads an object whose checksum at the server is another.
func TestWrongChecksum(t *testing.T) {
	for sum, want := range map[string]error{"AAAAAAAAAAA=": s3rdma.ErrChecksum, "": nil} {
		r := newRig(t, s3rdma.DC, page(func(w http.ResponseWriter, data []byte) {
			w.Header().Set("X-Amz-Checksum-Crc64nvme", sum)
			w.Write(data)
		}, randomBytes(1000)))
		if _, got, err := r.fetch(); !errors.Is(err, want) || len(got) != 1000 {
			t.Errorf("%d bytes, %v, want %v", len(got), err, want)
		}
	}
}

// TestPartChecksum has a server that refuses checksums of parts, and of requests by HTTP, that the client has not sent.
func TestPartChecksum(t *testing.T) {
	r := newRig(t, s3rdma.DC)
	front := *r.front.Load()
	r.serveBy(func(w http.ResponseWriter, q *http.Request) {
		part := q.URL.Query().Has("partNumber")
		if sum := q.Header.Get("X-Amz-Checksum-Crc64nvme"); sum != "" && (part || q.ContentLength > 0) {
			t.Errorf("part: %v, %d bytes by HTTP, checksum %q", part, q.ContentLength, sum)
		}
		if strings.HasSuffix(q.URL.Path, "/declined") && q.Header.Get("X-Amz-Rdma-Token") != "" {
			w.Header().Set("X-Amz-Rdma-Reply", "501")
			w.WriteHeader(http.StatusNotImplemented)
			return
		}
		front(w, q)
	})
	data := randomBytes(11 << 20)
	o := minio.PutObjectOptions{PartSize: 5 << 20, DisableContentSha256: true}
	must(r.put("a", data, o))(t)
	r.moved(int64(len(data)))
	o.PartSize = 16 << 20
	must(r.put("declined", data, o))(t)
	r.same("a", data)
}

// TestLongBody has bodies that are longer than their length, and one that fails at its end.
func TestLongBody(t *testing.T) {
	forms(t, func(r *rig) {
		for want, body := range map[error]io.Reader{
			http.ErrContentLength: strings.NewReader("hello, world"),
			errNo:                 io.MultiReader(strings.NewReader("hello"), iotest.ErrReader(errNo)),
		} {
			q := must(http.NewRequestWithContext(r.ctx, http.MethodPut, r.url+"/"+bucket+"/a", io.NopCloser(body)))(r)
			q.ContentLength = 5
			r.onClient(func() {
				resp, err := r.transport.RoundTrip(q)
				if err == nil {
					resp.Body.Close()
				}
				if !errors.Is(err, want) {
					r.Errorf("%v, want %v", err, want)
				}
			})
		}
		r.released()
	}, func(r *rig) {
		r.handler.Next = r.plain
		r.serveBy(r.handler.ServeHTTP)
	})
}

// TestStrangeRequests has requests that no client of the wire sends.
func TestStrangeRequests(t *testing.T) {
	r := newRig(t, s3rdma.DC, unsigned)
	send := func(method, body string, headers ...string) *http.Response {
		url := r.url + "/" + bucket + "/a"
		if query, ok := strings.CutPrefix(body, "?"); ok {
			url, body = url+"?"+query, ""
		}
		q := must(http.NewRequestWithContext(r.ctx, method, url, strings.NewReader(body)))(t)
		for i := 0; i < len(headers); i += 2 {
			q.Header.Add(headers[i], headers[i+1])
		}
		resp := must(r.base.RoundTrip(q))(t)
		io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		return resp
	}
	const token = "X-Amz-Rdma-Token"
	for name, c := range map[string]struct {
		resp   *http.Response
		status int
		reply  string
	}{
		"PUT with a body and a token": {send("PUT", "hello", token, descriptor), 200, "501"},
		"GET with a malformed token":  {send("GET", "", token, "x"), 200, "501"},
		"HEAD with a token":           {send("HEAD", "", token, descriptor), 200, "501"},
		"PUT with a malformed token":  {send("PUT", "", token, "x"), 501, "501"},
		"PUT with two tokens":         {send("PUT", "", token, descriptor, token, descriptor), 501, "501"},
		"POST of a session":           {send("POST", "", "X-Amz-Rdma-Protocol", "hipobj-rc-v2"), 400, ""},
		"PUT, token not signed": {send("PUT", "", token, descriptor, "Authorization",
			"AWS4-HMAC-SHA256 Credential=a/20261128/r/s3/aws4_request, SignedHeaders=host, Signature=00"), 501, "501"},
		"PUT, other signature": {send("PUT", "", token, descriptor, "Authorization",
			"AWS4-ECDSA-P256-SHA256 Credential=a/20261128/s3/aws4_request, SignedHeaders=host, Signature=00"), 501, "501"},
		"PUT, old signature": {send("PUT", "", token, descriptor, "Authorization", "AWS a:00"), 501, "501"},
		"PUT, presigned":     {send("PUT", "?X-Amz-Signature=00", token, descriptor), 501, "501"},
		"PUT, old presigned": {send("PUT", "?Signature=00", token, descriptor), 501, "501"},
	} {
		if got := c.resp.Header.Get("X-Amz-Rdma-Reply"); c.resp.StatusCode != c.status || got != c.reply {
			t.Errorf("%s: status %d, reply %q, want %d and %q", name, c.resp.StatusCode, got, c.status, c.reply)
		}
	}
	if n, _ := r.served.byRDMA(); n != 0 {
		t.Errorf("%d bytes by RDMA", n)
	}
}

// TestDate has a client that corrects its clock in the date of its requests. Those of the Transport have the same date.
func TestDate(t *testing.T) {
	var date string
	r := newRig(t, s3rdma.DC, page(func(w http.ResponseWriter, data []byte) { w.Write(data) }, randomBytes(1000)),
		func(r *rig) {
			r.transport.Base = tap{RoundTripper: r.base, request: func(q *http.Request) {
				if q.Header.Get("X-Amz-Rdma-Token") != "" {
					date = q.Header.Get("X-Amz-Date")
				}
			}}
		})
	const format = "20060102T150405Z"
	want := time.Now().UTC().Add(-5 * time.Hour)
	q := must(http.NewRequestWithContext(r.ctx, http.MethodGet, r.url+"/"+bucket+"/page", nil))(t)
	q.Header.Set("X-Amz-Date", want.Format(format))
	q.Header.Set("Authorization", "AWS4-HMAC-SHA256 Credential="+accessKey+"/20261128/r/s3/aws4_request, "+
		"SignedHeaders=host;x-amz-date, Signature=00")
	r.onClient(func() { must(r.transport.RoundTrip(q))(t).Body.Close() })
	if got, err := time.Parse(format, date); err != nil || got.Sub(want).Abs() > time.Hour {
		t.Errorf("%s, want about %s (%v)", date, want.Format(format), err)
	}
}

// TestSmallMemory has less memory than the requests in progress need. The others travel by HTTP.
func TestSmallMemory(t *testing.T) {
	r := newRig(t, s3rdma.DC, func(r *rig) { r.transport.MaxMemory = 2 << 20 })
	data := randomBytes(1 << 20)
	must(r.put("a", data, minio.PutObjectOptions{}))(t)
	r.got.take()
	r.onClient(func() {
		var open []*http.Response
		for range 4 {
			q := must(http.NewRequestWithContext(r.ctx, http.MethodGet, r.url+"/"+bucket+"/a", nil))(t)
			q.Header.Set("X-Amz-Content-Sha256", "UNSIGNED-PAYLOAD")
			q = signer.SignV4(*q, accessKey, secretKey, "", "us-east-1")
			open = append(open, must(r.transport.RoundTrip(q))(t))
		}
		for _, resp := range open {
			if got := must(io.ReadAll(resp.Body))(t); !bytes.Equal(got, data) {
				t.Error("other data")
			}
			resp.Body.Close()
		}
	})
	n, reasons := r.got.byRDMA()
	if n != 2<<20 || len(reasons) != 2 || !errors.Is(reasons[0], s3rdma.ErrTooLarge) {
		t.Errorf("%d bytes by RDMA, %v", n, reasons)
	}
	r.released()
}

// TestMemoryOfDeclines has PUTs in progress that the server has declined. Their memory counts.
func TestMemoryOfDeclines(t *testing.T) {
	forms(t, func(r *rig) {
		const n = 4
		arrived, goOn := make(chan bool, n), make(chan bool)
		r.handler.Next = http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
			if q.Method == http.MethodPut && q.Header.Get("X-Amz-Rdma-Token") == "" && q.URL.Path != "/"+bucket+"/" {
				arrived <- true
				<-goOn
			}
			r.plain.ServeHTTP(w, q)
		})
		r.handler.Device.Close()
		r.handler.Device = nil
		r.serveBy(r.handler.ServeHTTP)
		var all sync.WaitGroup
		for i := range n {
			all.Go(func() {
				if _, err := r.put(fmt.Sprint(i), make([]byte, 1<<20), minio.PutObjectOptions{}); err != nil {
					r.Error(err)
				}
			})
			<-arrived
		}
		used, _ := r.transport.Memory()
		close(goOn)
		all.Wait()
		_, why := r.got.byRDMA()
		var full int
		for _, err := range why {
			if errors.Is(err, s3rdma.ErrTooLarge) {
				full++
			}
		}
		if used != 2<<20 || full != n-2 {
			r.Errorf("%d bytes are in use, and %d PUTs had no memory: %v", used, full, why)
		}
		r.released()
	}, func(r *rig) { r.transport.MaxMemory = 2 << 20 })
}

// TestDeviceGone removes the device of either side. Everything then travels by HTTP.
func TestDeviceGone(t *testing.T) {
	for _, side := range []string{"client", "server"} {
		t.Run(side, func(t *testing.T) {
			forms(t, func(r *rig) {
				data := randomBytes(100_000)
				must(r.put("a", data, minio.PutObjectOptions{}))(r)
				map[string]*verbstest.Machine{"client": r.client, "server": r.server}[side].RemoveDevice()
				r.got.take()
				for i := range 3 {
					r.same("a", data)
					must(r.put(fmt.Sprint(i), data, minio.PutObjectOptions{}))(r)
				}
				if n, reasons := r.got.byRDMA(); n != 0 || len(reasons) < 6 {
					r.Errorf("%d bytes by RDMA, %v", n, reasons)
				}
				r.released()
			})
		})
	}
}
