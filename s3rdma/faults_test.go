package s3rdma_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"

	"github.com/goverbs/goverbs/s3rdma"
	"github.com/goverbs/goverbs/uverbs"
	"github.com/goverbs/goverbs/verbstest"
)

// A tap changes requests or responses on their way.
type tap struct {
	http.RoundTripper
	request  func(*http.Request)
	response func(*http.Response)
}

func (t tap) RoundTrip(r *http.Request) (*http.Response, error) {
	if t.request != nil {
		r = r.Clone(r.Context())
		t.request(r)
	}
	resp, err := t.RoundTripper.RoundTrip(r)
	if err == nil && t.response != nil {
		t.response(resp)
	}
	return resp, err
}

// unsigned makes the server accept requests that a tap has changed.
func unsigned(r *rig) {
	r.handler.Next = r.plain
	r.serveBy(r.handler.ServeHTTP)
}

// tokens changes the tokens of the client's requests, once on is set.
func (r *rig) tokens(change func(string) string, on *bool) {
	r.transport.Base = tap{RoundTripper: r.base, request: func(q *http.Request) {
		if text := q.Header.Get("X-Amz-Rdma-Token"); text != "" && q.Method != http.MethodHead && *on {
			q.Header.Set("X-Amz-Rdma-Token", change(text))
		}
	}}
}

// TestLies has tokens of memory that the client has not offered, and texts that are not tokens. The server survives,
// and the data travels by HTTP.
func TestLies(t *testing.T) {
	lies := map[string]func(s3rdma.Token) string{
		"address": func(t s3rdma.Token) string { t.Addr += 1 << 30; return t.String() },
		"before":  func(t s3rdma.Token) string { t.Addr--; return t.String() },
		"behind":  func(t s3rdma.Token) string { t.Addr += uint64(t.Size) - 10; return t.String() },
		"key":     func(t s3rdma.Token) string { t.RKey ^= 0x5500; return t.String() },
		"DCT":     func(t s3rdma.Token) string { t.DCTN ^= 0xff0000; return t.String() },
		"host":    func(t s3rdma.Token) string { t.GID[15] = 99; return t.String() },
		"self":    func(t s3rdma.Token) string { t.GID[15] = 1; return t.String() },
		"huge":    func(t s3rdma.Token) string { t.Size = 1<<32 - 1; return t.String() },
	}
	for name, text := range hostileTokens {
		if text = strings.TrimSpace(text); len(text) < 1<<10 { // the limit of headers
			lies["text: "+name] = func(s3rdma.Token) string { return text }
		}
	}
	for name, lie := range lies {
		t.Run(name, func(t *testing.T) {
			var on bool
			r := newRig(t, s3rdma.DC, unsigned, func(r *rig) {
				r.tokens(func(text string) string { return lie(must(s3rdma.ParseToken(text))(r)) }, &on)
			})
			r.net.Allow(verbstest.RemoteAccess, verbstest.Destination)
			data := randomBytes(100_000)
			must(r.put("a", data, minio.PutObjectOptions{}))(t)
			r.moved(int64(len(data)))
			on = true
			r.same("a", data)
			must(r.put("b", data[1:], minio.PutObjectOptions{}))(t)
			if n, _ := r.got.byRDMA(); n > 0 && name != "huge" { // a GET may have more memory than it needs
				t.Errorf("%d bytes by RDMA", n)
			}
			on = false
			r.served.take()
			r.same("b", data[1:])
			r.moved(int64(len(data) - 1))
			r.released()
		})
	}
}

// TestDeclined has servers that do not use RDMA. Their objects are those that were stored, not empty ones.
func TestDeclined(t *testing.T) {
	data := randomBytes(3 << 20)
	ignore := func(r *rig) { r.serveBy(r.handler.Next.ServeHTTP) }
	// careless is a server that neither knows the wire nor checks checksums.
	careless := func(r *rig) {
		next := r.handler.Next
		r.serveBy(func(w http.ResponseWriter, q *http.Request) {
			if q.Method == http.MethodPut && q.Header.Get("X-Amz-Rdma-Token") != "" {
				w.Header().Set("ETag", `"d41d8cd98f00b204e9800998ecf8427e"`)
				return
			}
			next.ServeHTTP(w, q)
		})
	}
	for name, change := range map[string]func(*rig){
		"that has no Handler":             ignore,
		"that checks nothing":             careless,
		"that checks nothing, AcceptETag": func(r *rig) { careless(r); r.transport.AcceptETag = true },
		"that checks nothing, NoChecksum": func(r *rig) { careless(r); r.transport.NoChecksum = true },
		"that has no device":              func(r *rig) { r.handler.Device.Close(); r.handler.Device = nil },
		"of another key":                  func(r *rig) { r.handler.DCKey = 5 },
		"that does not reach the client": func(r *rig) {
			r.handler.Allow = func(*http.Request, netip.Addr) error { return errNo }
		},
		"of small objects":             func(r *rig) { r.handler.MaxSize = 1000; r.transport.Window = 1 << 30 },
		"that is closed":               func(r *rig) { r.handler.Close() },
		"of a client without a device": func(r *rig) { r.transport.Device.Close(); r.transport.Device = nil },
		"of a client without memory":   func(r *rig) { r.transport.MaxMemory = 1000 },
		"of a client without a secret": func(r *rig) { r.transport.Secret = nil },
		"of a client that does not trust": func(r *rig) {
			r.transport.Secret = func(context.Context, string) (string, error) { return "", errNo }
		},
		"that is closed by its own client": func(r *rig) { r.transport.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			forms(t, func(r *rig) {
				r.net.Allow(verbstest.QKey)
				must(r.put("a", data, minio.PutObjectOptions{}))(r)
				put, reasons := r.got.byRDMA()
				if r.service == s3rdma.RC && name == "of another key" { // sessions have none
					return
				}
				if put != 0 || len(reasons) == 0 {
					r.Errorf("%d bytes of the PUT by RDMA, %v", put, reasons)
				}
				r.same("a", data)
				if got, reasons := r.got.byRDMA(); name != "of small objects" && (got != 0 || len(reasons) == 0) {
					r.Errorf("%d bytes of the GET by RDMA, %v", got, reasons)
				}
				r.released()
			}, change)
		})
	}
}

var errNo = errors.New("no")

// TestUnknowing has a server that does not know the wire, nor checksums. No PUT of a token reaches it, so that it has
// no object without data, conditions hold, and a PUT that is canceled leaves the object what it was.
func TestUnknowing(t *testing.T) {
	r := newRig(t, s3rdma.DC)
	var tokens atomic.Int32
	ctx, cancel := context.WithCancel(r.ctx)
	defer cancel()
	r.serveBy(func(w http.ResponseWriter, q *http.Request) {
		q.Header.Del("X-Amz-Checksum-Crc64nvme")
		if q.Header.Get("X-Amz-Rdma-Token") != "" {
			tokens.Add(1)
		}
		if q.Method == http.MethodPut && strings.HasSuffix(q.URL.Path, "/canceled") && q.ContentLength >= 2000 {
			cancel()
			panic(http.ErrAbortHandler)
		}
		r.plain.ServeHTTP(w, q)
	})
	old, data := randomBytes(1000), randomBytes(2000)
	info := must(r.put("a", old, minio.PutObjectOptions{}))(t)
	must(r.put("canceled", old, minio.PutObjectOptions{}))(t)
	o := minio.PutObjectOptions{}
	o.SetMatchETag(info.ETag)
	must(r.put("a", data, o))(t)
	o = minio.PutObjectOptions{}
	o.SetMatchETagExcept("*")
	must(r.put("new", data, o))(t)
	r.onClient(func() {
		_, err := r.minio.PutObject(ctx, bucket, "canceled", bytes.NewReader(data), 2000, minio.PutObjectOptions{})
		if !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
	if n, why := r.got.byRDMA(); n != 0 || len(why) < 5 || tokens.Load() != 1 {
		t.Errorf("%d bytes by RDMA, %v, and %d tokens, want the one of a HEAD", n, why, tokens.Load())
	}
	r.same("a", data)
	r.same("new", data)
	r.same("canceled", old)
	r.released()
}

// TestReplaced has a server that knows the wire, and then one that does not.
func TestReplaced(t *testing.T) {
	r := newRig(t, s3rdma.DC)
	data := randomBytes(1000)
	must(r.put("a", data, minio.PutObjectOptions{}))(t)
	var tokens atomic.Int32
	r.serveBy(func(w http.ResponseWriter, q *http.Request) {
		q.Header.Del("X-Amz-Checksum-Crc64nvme")
		if q.Header.Get("X-Amz-Rdma-Token") != "" {
			tokens.Add(1)
		}
		r.plain.ServeHTTP(w, q)
	})
	for range 10 {
		must(r.put("a", data[1:], minio.PutObjectOptions{}))(t)
	}
	if n := tokens.Load(); n != 1 {
		t.Errorf("%d of 10 PUTs had a token", n)
	}
	r.same("a", data[1:])
}

// TestAllowLID has tokens of InfiniBand. The packets go to the LID, and Allow sees an address that the client may have
// made up.
func TestAllowLID(t *testing.T) {
	for _, service := range []s3rdma.Service{s3rdma.DC, s3rdma.RC} {
		for name, change := range map[string]func(t *s3rdma.Token){
			"no GID":    func(t *s3rdma.Token) { t.HasGID = false },
			"other GID": func(t *s3rdma.Token) { t.GID = uverbs.GID{0: 0xfe, 1: 0x80, 15: 0x77} },
			"own GID":   func(*s3rdma.Token) {},
		} {
			on := service == s3rdma.DC
			if !on && name != "own GID" { // tokens of sessions are not changed
				continue
			}
			t.Run(string(service)+", "+name, func(t *testing.T) {
				r := newRigOn(t, verbstest.NewNetwork(t, verbstest.InfiniBand()), service, func(r *rig) {
					if on {
						unsigned(r)
					}
					r.tokens(func(text string) string {
						token := must(s3rdma.ParseToken(text))(r)
						change(&token)
						return token.String()
					}, &on)
					r.handler.Allow = func(*http.Request, netip.Addr) error { return nil }
				})
				data := randomBytes(1000)
				must(r.put("a", data, minio.PutObjectOptions{}))(t)
				r.same("a", data)
				if n, why := r.got.byRDMA(); n != 0 || len(why) == 0 {
					t.Errorf("%d bytes by RDMA, %v", n, why)
				}
			})
		}
	}
}

// TestNoReply has a server whose responses to PUTs have no reply header, as the published wire allows.
func TestNoReply(t *testing.T) {
	data := randomBytes(100_000)
	for name, c := range map[string]struct {
		change func(*rig)
		want   int64
	}{
		"checksum":   {func(*rig) {}, 100_000},
		"AcceptETag": {func(r *rig) { r.transport.AcceptETag, r.transport.NoChecksum = true, true }, 100_000},
		"neither":    {func(r *rig) { r.transport.NoChecksum = true }, 0},
		"malformed": {func(r *rig) {
			r.transport.Base = tap{RoundTripper: r.base, response: func(resp *http.Response) {
				resp.Header.Set("X-Amz-Rdma-Reply", "200x")
			}}
		}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, s3rdma.DC, func(r *rig) {
				r.transport.Base = tap{RoundTripper: r.base, response: func(resp *http.Response) {
					if resp.Request.Method == http.MethodPut {
						resp.Header.Del("X-Amz-Rdma-Reply")
					}
				}}
				c.change(r)
			})
			must(r.put("a", data, minio.PutObjectOptions{}))(t)
			if n, why := r.got.byRDMA(); n != c.want {
				t.Errorf("%d bytes by RDMA (%v), want %d", n, why, c.want)
			}
			r.same("a", data)
		})
	}
}

// TestReplies has servers whose responses to GETs contradict themselves. The data is read again by HTTP.
func TestReplies(t *testing.T) {
	data := randomBytes(100_000)
	for name, c := range map[string]struct{ header, value string }{
		"more bytes than offered": {"X-Amz-Rdma-Bytes-Transferred", "4294967295"},
		"fewer than the range":    {"X-Amz-Rdma-Bytes-Transferred", "99999"},
		"no number":               {"X-Amz-Rdma-Bytes-Transferred", "-1"},
		"no bytes":                {"X-Amz-Rdma-Bytes-Transferred", ""},
		"another range":           {"Content-Range", "bytes 1-99999/100000"},
		"no range":                {"Content-Range", ""},
		"beyond the object":       {"Content-Range", "bytes 0-99999/5"},
		"backwards":               {"Content-Range", "bytes 5-0/100000"},
		"another status":          {"X-Amz-Rdma-Reply", "200"},
		"no status":               {"X-Amz-Rdma-Reply", "two hundred"},
		"another success":         {"X-Amz-Rdma-Reply", "204"},
		"no reply":                {"X-Amz-Rdma-Reply", ""},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, s3rdma.DC, func(r *rig) {
				r.transport.Base = tap{RoundTripper: r.base, response: func(resp *http.Response) {
					if resp.Request.Method == http.MethodGet && resp.Header.Get("X-Amz-Rdma-Reply") != "" {
						resp.Header.Set(c.header, c.value)
					}
				}}
			})
			must(r.put("a", data, minio.PutObjectOptions{}))(t)
			r.got.take()
			r.same("a", data)
			n, reasons := r.got.byRDMA()
			if n != 0 || len(reasons) != 1 || !errors.Is(reasons[0], s3rdma.ErrProtocol) && c.value != "" {
				t.Errorf("%d bytes by RDMA, %v", n, reasons)
			}
			r.released()
		})
	}
}

// TestStale has a server that says that it has written the data, and has not. The client sees no data of an earlier
// request.
func TestStale(t *testing.T) {
	r := newRig(t, s3rdma.DC, unsigned)
	secret := bytes.Repeat([]byte("another request "), 1000)
	must(r.put("a", secret, minio.PutObjectOptions{}))(t)
	if _, spare := r.transport.Memory(); len(spare) != 1 {
		t.Fatalf("%d spare buffers, want 1", len(spare))
	}
	r.serveBy(func(w http.ResponseWriter, _ *http.Request) {
		for name, value := range map[string]string{"X-Amz-Rdma-Reply": "206", "Content-Length": "0",
			"X-Amz-Rdma-Bytes-Transferred": "16000", "Content-Range": "bytes 0-15999/16000"} {
			w.Header().Set(name, value)
		}
		w.WriteHeader(http.StatusPartialContent)
	})
	r.onClient(func() {
		q := must(http.NewRequestWithContext(r.ctx, http.MethodGet, r.url+"/"+bucket+"/b", nil))(t)
		q.Header.Set("Range", "bytes=0-15999") // the length of the spare buffer
		resp := must(r.transport.RoundTrip(q))(t)
		defer resp.Body.Close()
		if data := must(io.ReadAll(resp.Body))(t); len(data) != len(secret) || bytes.Contains(data, []byte("request")) {
			t.Errorf("%d bytes, of another request: %q", len(data), data[:16])
		}
	})
}

// TestLongHeaders has peers that send long headers. What is logged of them is short.
func TestLongHeaders(t *testing.T) {
	long := strings.Repeat("x", 5000)
	for path, names := range map[string][]string{
		"/a":       {"X-Amz-Rdma-Reply", "X-Amz-Rdma-Bytes-Transferred", "Content-Range", "X-Amz-Checksum-Crc64nvme"},
		"/prepare": {"X-Amz-Rdma-Session", "X-Amz-Rdma-Psn", "X-Amz-Rdma-Reply"},
		"/ready":   {"X-Amz-Rdma-Protocol", "X-Amz-Rdma-Cookie", "X-Amz-Rdma-Etag"},
	} {
		for _, name := range names {
			forms(t, func(r *rig) {
				must(r.put("a", randomBytes(1000), minio.PutObjectOptions{}))(r)
				_, err := r.get(r.ctx, "a", minio.GetObjectOptions{})
				for _, e := range append(r.got.take(), s3rdma.Transfer{Err: err}) {
					if n := len(fmt.Sprint(e.Err)); n > 1000 {
						r.Errorf("%s of %s: an error of %d bytes", name, path, n)
					}
				}
				r.handler.ExpireSessions()
			}, func(r *rig) {
				r.transport.Base = tap{RoundTripper: r.base, response: func(resp *http.Response) {
					if strings.HasSuffix(resp.Request.URL.Path, path) {
						resp.Header.Set(name, long)
					}
				}}
			})
		}
	}
	r := newRig(t, s3rdma.DC, sessions)
	for _, name := range []string{"cookie", "size", "op", "target"} {
		r.control("prepare", prepare(name, "/"+long+"?acl"))
	}
	r.control("ready", headers("protocol", "hipobj-rc-v2", "session", long, "cookie", "1"))
	r.control(long, headers("protocol", "hipobj-rc-v2"))
	for _, e := range r.served.take() {
		if n := len(fmt.Sprint(e.Err)); n > 1000 {
			t.Errorf("an error of %d bytes: %.300v", n, e.Err)
		}
	}
}

// canceled runs a request, and cancels it when the server has begun to move data. The server does not notice that the
// client has left.
func (r *rig) canceled(request func(ctx context.Context) error) {
	r.Helper()
	front := *r.front.Load()
	r.serveBy(func(w http.ResponseWriter, q *http.Request) {
		front(w, q.WithContext(context.WithoutCancel(q.Context())))
	})
	ctx, cancel := context.WithCancel(r.ctx)
	defer cancel()
	ended := make(chan error, 1)
	r.onClient(func() { go func() { ended <- request(ctx) }() })
	r.underway()
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		r.Fatalf("%v, want Canceled", err)
	}
	r.serveBy(front)
}

// abandoned is released after requests whose sessions the client may not know.
func (r *rig) abandoned() {
	r.Helper()
	r.serving.Wait()
	r.handler.ExpireSessions()
	r.released()
}

// underway waits until the server has a transfer or a session in progress.
func (r *rig) underway() {
	r.Helper()
	for r.ctx.Err() == nil {
		if transfers, sessions := r.handler.InUse(); transfers+sessions > 0 {
			return
		}
		runtime.Gosched()
	}
	r.Fatal("the server has no transfer in progress")
}

// TestCancel checks that the server does not write the memory of a request that was canceled, which other requests use.
func TestCancel(t *testing.T) {
	forms(t, func(r *rig) {
		r.net.Allow(verbstest.RemoteAccess, verbstest.Destination)
		data := randomBytes(100_000)
		must(r.put("a", data, minio.PutObjectOptions{}))(r)
		heal := r.net.AddFault(verbstest.PacketFault{Action: verbstest.Drop, To: r.client, Skip: 5})
		r.canceled(func(ctx context.Context) error {
			_, err := r.get(ctx, "a", minio.GetObjectOptions{})
			return err
		})
		_, spare := r.transport.Memory()
		for _, b := range spare { // another request uses the memory
			fill(b[:cap(b)])
		}
		heal()
		r.serving.Wait() // the server has tried again
		for _, b := range spare {
			for i, v := range b[:cap(b)] {
				if v != 0xa5 {
					r.Fatalf("byte %d of memory in use is %#x: written for the canceled request", i, v)
				}
			}
		}
		if len(spare) == 0 {
			r.Error("the client has no spare memory: nothing was tested")
		}
		r.got.take()
		r.served.take()
		r.same("a", data)
		r.moved(int64(len(data)))
		r.abandoned()
	}, func(r *rig) { r.handler.Timeout = 2 * time.Second })
}

func fill(b []byte) {
	for i := range b {
		b[i] = 0xa5
	}
}

// TestCancelPut ends a PUT while the server reads. The server can read no more, and stores nothing.
func TestCancelPut(t *testing.T) {
	forms(t, func(r *rig) {
		r.net.Allow(verbstest.RemoteAccess, verbstest.Destination)
		old, data := randomBytes(1000), randomBytes(3<<20)
		must(r.put("a", old, minio.PutObjectOptions{}))(r)
		heal := r.net.AddFault(verbstest.PacketFault{Action: verbstest.Drop, To: r.server, Skip: 300})
		r.canceled(func(ctx context.Context) error {
			_, err := r.minio.PutObject(ctx, bucket, "a", bytes.NewReader(data), int64(len(data)), minio.PutObjectOptions{})
			return err
		})
		heal()
		r.serving.Wait()
		r.same("a", old)
		r.abandoned()
	}, func(r *rig) { r.handler.Timeout = 2 * time.Second })
}

// TestLoss has a network that loses, delays and duplicates packets.
func TestLoss(t *testing.T) {
	forms(t, func(r *rig) {
		data := randomBytes(300_000)
		for _, f := range []verbstest.PacketFault{{Action: verbstest.Drop, Probability: 0.01},
			{Action: verbstest.Delay, Delay: time.Millisecond}, {Action: verbstest.Duplicate, Probability: 0.1}} {
			heal := r.net.AddFault(f)
			must(r.put("a", data, minio.PutObjectOptions{}))(r)
			r.same("a", data)
			heal()
			r.moved(int64(2 * len(data)))
		}
	})
}

// TestTimeout has a client whose device no longer replies. The server gives up, and the data travels by HTTP.
func TestTimeout(t *testing.T) {
	forms(t, func(r *rig) {
		data := randomBytes(300_000)
		must(r.put("a", data, minio.PutObjectOptions{}))(r)
		r.got.take()
		r.served.take()
		heal := r.net.Partition(r.client, r.server)
		defer heal()
		r.same("a", data)
		must(r.put("b", data, minio.PutObjectOptions{}))(r)
		if n, reasons := r.got.byRDMA(); n != 0 || len(reasons) < 2 {
			r.Errorf("%d bytes by RDMA, %v", n, reasons)
		}
		var named bool
		for _, e := range r.served.take() {
			named = named || errors.Is(e.Err, s3rdma.ErrTimeout) || errors.Is(e.Err, s3rdma.ErrTransfer)
		}
		if !named {
			r.Error("the server has no reason")
		}
		heal()
		r.same("b", data)
		r.released()
	}, func(r *rig) { r.handler.Timeout = 50 * time.Millisecond })
}

// TestBusy has a server with a place for one transfer, which another client holds.
func TestBusy(t *testing.T) {
	forms(t, func(r *rig) {
		data := randomBytes(300_000)
		must(r.put("a", data, minio.PutObjectOptions{}))(r)
		r.got.take()
		r.served.take()
		heal := r.net.AddFault(verbstest.PacketFault{Action: verbstest.Drop, To: r.client})
		first := make(chan error, 1)
		ctx, cancel := context.WithCancel(r.ctx)
		go func() {
			_, err := r.get(ctx, "a", minio.GetObjectOptions{})
			first <- err
		}()
		r.underway()
		r.same("a", data)
		n, reasons := r.got.byRDMA()
		_, served := r.served.byRDMA()
		if n != 0 || len(reasons) != 1 || len(served) == 0 || !errors.Is(served[0], s3rdma.ErrBusy) {
			r.Errorf("%d bytes by RDMA, %v, %v", n, reasons, served)
		}
		cancel()
		if err := <-first; !errors.Is(err, context.Canceled) {
			r.Error(err)
		}
		heal()
		r.abandoned()
	}, func(r *rig) { r.handler.MaxTransfers, r.handler.MaxWait = 1, time.Millisecond })
}

// TestClientKilled powers the client off while the server reads its memory. The server ends the transfer.
func TestClientKilled(t *testing.T) {
	r := newRig(t, s3rdma.DC)
	old := randomBytes(1000)
	must(r.put("a", old, minio.PutObjectOptions{}))(t)
	front := *r.front.Load()
	r.serveBy(func(w http.ResponseWriter, q *http.Request) {
		if q.Header.Get("X-Amz-Rdma-Token") != "" {
			r.client.Kill()
		}
		front(w, q)
	})
	_, err := r.put("b", randomBytes(3<<20), minio.PutObjectOptions{}) // its HTTP is not on the machine
	check(t, err)
	r.transport.Device.Close()
	if n, _ := r.served.byRDMA(); n != int64(len(old)) {
		t.Errorf("%d bytes by RDMA", n)
	}
	r.serving.Wait()
	if transfers, _ := r.handler.InUse(); transfers != 0 {
		t.Errorf("%d transfers in progress", transfers)
	}
}

// TestServerKilled powers the server off during requests.
func TestServerKilled(t *testing.T) {
	forms(t, func(r *rig) {
		must(r.put("a", randomBytes(1000), minio.PutObjectOptions{}))(r)
		killed := make(chan bool, 99)
		r.serveBy(func(_ http.ResponseWriter, q *http.Request) {
			r.server.Kill()
			killed <- true
			panic(http.ErrAbortHandler)
		})
		ctx, cancel := context.WithTimeout(r.ctx, time.Second) // minio-go tries again and again
		defer cancel()
		if _, err := r.get(ctx, "a", minio.GetObjectOptions{}); err == nil {
			r.Error("no error")
		}
		<-killed
		if used, _ := r.transport.Memory(); used != 0 {
			r.Errorf("the client uses %d bytes", used)
		}
	})
}

// TestCommandsFail makes the kernel refuse each command of a PUT and a GET. The data travels by HTTP.
func TestCommandsFail(t *testing.T) {
	for _, side := range []string{"client", "server"} {
		t.Run(side, func(t *testing.T) {
			failed := 0
			for n := 1; n <= 16; n++ {
				forms(t, func(r *rig) {
					machine := map[string]*verbstest.Machine{"client": r.client, "server": r.server}[side]
					machine.FailCommand(n, syscall.EFAULT)
					data := randomBytes(10_000)
					must(r.put("a", data, minio.PutObjectOptions{}))(r)
					r.same("a", data)
					_, why := r.got.byRDMA()
					failed += len(why)
					machine.FailCommand(1<<30, syscall.EFAULT)
					r.served.take()
					r.same("a", data)
					r.moved(int64(len(data)))
					r.released()
				})
			}
			if failed < 16 {
				t.Errorf("%d requests have travelled by HTTP", failed)
			}
		})
	}
}

// TestRepeated has a server that uses the token of a GET after its connection was lost, and after the response to the
// GET that http.Transport has sent again.
func TestRepeated(t *testing.T) {
	var first atomic.Pointer[http.Request]
	r := newRig(t, s3rdma.DC)
	r.net.Allow(verbstest.RemoteAccess, verbstest.Destination)
	data := randomBytes(100_000)
	must(r.put("a", data, minio.PutObjectOptions{}))(t)
	r.serveBy(func(w http.ResponseWriter, q *http.Request) {
		if q.Header.Get("X-Amz-Rdma-Token") != "" &&
			first.CompareAndSwap(nil, q.Clone(context.WithoutCancel(q.Context()))) {
			panic(http.ErrAbortHandler) // closes the connection
		}
		r.handler.ServeHTTP(w, q)
	})
	r.got.take()
	r.same("a", data)
	if _, reasons := r.got.byRDMA(); len(reasons) != 1 || !errors.Is(reasons[0], s3rdma.ErrProtocol) {
		t.Errorf("%v, want that the request was sent twice", reasons)
	}
	_, spare := r.transport.Memory()
	for _, b := range spare {
		fill(b[:cap(b)])
	}
	r.onServer(func() { r.handler.ServeHTTP(&recorder{header: http.Header{}}, first.Load()) })
	for _, b := range spare {
		for i, v := range b[:cap(b)] {
			if v != 0xa5 {
				t.Fatalf("byte %d of memory in use is %#x: written for the first request", i, v)
			}
		}
	}
}

// A recorder drops a response.
type recorder struct{ header http.Header }

func (r *recorder) Header() http.Header         { return r.header }
func (r *recorder) WriteHeader(int)             {}
func (r *recorder) Write(p []byte) (int, error) { return len(p), nil }
