package s3rdma_test

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"

	"github.com/goverbs/goverbs/s3rdma"
	"github.com/goverbs/goverbs/verbstest"
)

// control sends a request of the form for reliable connections, by hand.
func (r *rig) control(path string, headers http.Header) *http.Response {
	r.Helper()
	q := must(http.NewRequestWithContext(r.ctx, http.MethodPost, r.url+"/.hipobj-rc/"+path, nil))(r)
	q.Header = headers.Clone()
	resp := must(r.base.RoundTrip(q))(r)
	text := must(io.ReadAll(resp.Body))(r)
	resp.Body.Close()
	resp.Body = io.NopCloser(bytes.NewReader(text))
	return resp
}

// roceToken is a token without a LID.
var roceToken = strings.TrimSuffix(rcToken, "0201") + "0000"

// prepare returns the headers of an honest first request, but for the changes.
func prepare(changes ...string) http.Header {
	return headers(append([]string{"protocol", "hipobj-rc-v2", "token", roceToken, "psn", "0a1b2c", "cookie", "01020304",
		"op", "PUT", "target", "/" + bucket + "/a", "size", "4096", "offset", "0"}, changes...)...)
}

// headers returns headers whose names begin with x-amz-rdma.
func headers(pairs ...string) http.Header {
	h := http.Header{}
	for i := 0; i < len(pairs); i += 2 {
		if h.Set("X-Amz-Rdma-"+pairs[i], pairs[i+1]); pairs[i+1] == "" {
			h.Del("X-Amz-Rdma-" + pairs[i])
		}
	}
	return h
}

// sessions makes the server accept control requests without signatures.
func sessions(r *rig) {
	r.handler.RC = func(post, object *http.Request) error {
		if post.Header.Get("X-Refuse") != "" || object.URL.Path == "/" || object.Context() != post.Context() {
			return errNo
		}
		return nil
	}
	unsigned(r)
}

// TestPrepare has first requests that are malformed, too large or not allowed.
func TestPrepare(t *testing.T) {
	r := newRig(t, s3rdma.DC, sessions, func(r *rig) {
		r.handler.MaxTransfers, r.handler.MaxMemory, r.handler.MaxSize = 2, 1<<20, 1<<30
		r.handler.Allow = func(_ *http.Request, peer netip.Addr) error {
			if peer == netip.MustParseAddr("192.0.2.99") {
				return errNo
			}
			return nil
		}
	})
	refused := prepare()
	refused.Set("X-Refuse", "1")
	for name, c := range map[string]struct {
		headers http.Header
		status  int
	}{
		"protocol":      {prepare("protocol", "hipobj-rc-v1"), 501},
		"no token":      {prepare("token", ""), 400},
		"token":         {prepare("token", strings.Repeat("0", 88)), 400},
		"host":          {prepare("token", strings.Replace(roceToken, "c0000201", "c0000263", 1)), 403},
		"LID":           {prepare("token", rcToken), 403},
		"PSN":           {prepare("psn", "000000"), 400},
		"long PSN":      {prepare("psn", "1000000"), 400},
		"cookie":        {prepare("cookie", "0"), 400},
		"no cookie":     {prepare("cookie", ""), 400},
		"op":            {prepare("op", "DELETE"), 400},
		"target":        {prepare("target", "nothing"), 400},
		"host target":   {prepare("target", "//other/a"), 400},
		"subresource":   {prepare("target", "/"+bucket+"/a?acl"), 400},
		"list":          {prepare("op", "GET", "target", "/"+bucket+"?list-type=2"), 400},
		"no size":       {prepare("size", "0"), 400},
		"negative size": {prepare("size", "-1"), 400},
		"size":          {prepare("size", "1073741825"), 413},
		"memory":        {prepare("size", "1073741824"), 503},
		"offset":        {prepare("offset", "-1"), 400},
		"PUT at offset": {prepare("offset", "1"), 400},
		"refused":       {refused, 403},
		"no object":     {prepare("op", "GET"), 404},
	} {
		if resp := r.control("prepare", c.headers); resp.StatusCode != c.status {
			t.Errorf("%s: status %d, want %d", name, resp.StatusCode, c.status)
		} else if c.status == 501 && resp.Header.Get("X-Amz-Rdma-Protocol-Status") != "unsupported" {
			t.Errorf("%s: %v", name, resp.Header)
		}
	}
	r.released()
	for i, want := range []int{200, 200, 503} {
		if resp := r.control("prepare", prepare()); resp.StatusCode != want {
			t.Errorf("session %d: status %d, want %d", i, resp.StatusCode, want)
		}
	}
	r.handler.ExpireSessions()
	if _, n := r.handler.InUse(); n != 0 {
		t.Errorf("%d sessions after their time", n)
	}
}

// TestStatus has servers whose response to the GET of a session is none, or one without data.
func TestStatus(t *testing.T) {
	for code, want := range map[int]int{0: 416, 200: 416, 204: 416, 206: 416, 304: 502, 307: 502, 404: 404, 500: 500} {
		r := newRig(t, s3rdma.DC, sessions, func(r *rig) {
			r.handler.Next = http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
				if q.Method != http.MethodGet {
					r.plain.ServeHTTP(w, q)
				} else if code != 0 {
					w.WriteHeader(code)
				}
			})
		})
		if resp := r.control("prepare", prepare("op", "GET")); resp.StatusCode != want {
			t.Errorf("status %d of a GET: %d, want %d", code, resp.StatusCode, want)
		}
		r.released()
	}
}

// TestOwners has an access key whose sessions use all the memory that one may have. There is memory for another one.
func TestOwners(t *testing.T) {
	r := newRig(t, s3rdma.DC, sessions, func(r *rig) { r.handler.MaxMemory = 4 << 20 })
	by := func(key string, size int) http.Header {
		h := prepare("size", fmt.Sprint(size))
		var names []string
		for name := range h {
			names = append(names, strings.ToLower(name))
		}
		h.Set("Authorization", "AWS4-HMAC-SHA256 Credential="+key+"/20261128/r/s3/aws4_request, SignedHeaders="+
			strings.Join(names, ";")+", Signature=00")
		return h
	}
	for i, c := range []struct {
		key          string
		size, status int
	}{{"a", 1<<20 + 1, 503}, {"a", 1 << 19, 200}, {"a", 1 << 19, 200}, {"a", 1, 503}, {"b", 1 << 20, 200}} {
		if resp := r.control("prepare", by(c.key, c.size)); resp.StatusCode != c.status {
			t.Errorf("session %d, of %s: status %d, want %d", i, c.key, resp.StatusCode, c.status)
		}
	}
	r.handler.ExpireSessions()
	if resp := r.control("prepare", by("a", 1<<20)); resp.StatusCode != 200 {
		t.Errorf("a session after the others: status %d", resp.StatusCode)
	}
	r.abandoned()
}

// TestReady has second requests that do not belong to a session. Only the right one can end it.
func TestReady(t *testing.T) {
	r := newRig(t, s3rdma.DC, sessions)
	first := r.control("prepare", prepare())
	id := first.Header.Get("X-Amz-Rdma-Session")
	if first.StatusCode != 200 || len(id) != 32 || !strings.HasPrefix(first.Header.Get("X-Amz-Rdma-Reply"), "200:01") {
		t.Fatalf("%d, %v", first.StatusCode, first.Header)
	}
	ready := func(changes ...string) http.Header {
		return headers(append([]string{"protocol", "hipobj-rc-v2", "session", id, "cookie", "01020304", "qpn", "10203",
			"mr-addr", "1000", "mr-rkey", "1"}, changes...)...)
	}
	other := ready()
	other.Set("Authorization", "AWS4-HMAC-SHA256 Credential=other/20261128/r/s3/aws4_request, SignedHeaders="+
		"x-amz-rdma-protocol;x-amz-rdma-session;x-amz-rdma-cookie;x-amz-rdma-qpn;x-amz-rdma-mr-addr;x-amz-rdma-mr-rkey,"+
		" Signature=00")
	for name, c := range map[string]struct {
		path    string
		headers http.Header
		status  int
	}{
		"session":        {"ready", ready("session", strings.Repeat("0", 32)), 404},
		"no session":     {"ready", ready("session", ""), 404},
		"cookie":         {"ready", ready("cookie", "01020305"), 403},
		"no cookie":      {"ready", ready("cookie", ""), 400},
		"QP":             {"ready", ready("qpn", "10204"), 409},
		"no QP":          {"ready", ready("qpn", "0"), 400},
		"other owner":    {"ready", other, 404},
		"cancels other":  {"cancel", other, 204},
		"cancels none":   {"cancel", ready("session", "x"), 204},
		"path":           {"begin", ready(), 404},
		"other protocol": {"ready", ready("protocol", ""), 501},
	} {
		if resp := r.control(c.path, c.headers); resp.StatusCode != c.status {
			t.Errorf("%s: status %d, want %d", name, resp.StatusCode, c.status)
		}
	}
	if _, n := r.handler.InUse(); n != 1 {
		t.Errorf("%d sessions, want 1", n)
	}
	if resp := r.control("cancel", ready()); resp.StatusCode != 204 {
		t.Errorf("cancel: status %d", resp.StatusCode)
	}
	r.released()
}

// TestSilentClient has a client that neither writes the data of a PUT nor has memory for that of a GET. The server
// gives up after its Timeout.
func TestSilentClient(t *testing.T) {
	r := newRig(t, s3rdma.DC, sessions, func(r *rig) { r.handler.Timeout = 20 * time.Millisecond })
	r.net.Allow(verbstest.RemoteAccess, verbstest.Destination)
	must(r.put("a", randomBytes(5000), minio.PutObjectOptions{}))(t)
	r.served.take()
	for _, op := range []string{"PUT", "GET"} {
		id := r.control("prepare", prepare("op", op)).Header.Get("X-Amz-Rdma-Session")
		resp := r.control("ready", headers("protocol", "hipobj-rc-v2", "session", id, "cookie", "01020304", "qpn", "10203",
			"mr-addr", "1000", "mr-rkey", "1"))
		all := r.served.take()
		if resp.StatusCode != 500 || len(all) != 1 || !errors.Is(all[0].Err, s3rdma.ErrTransfer) {
			t.Errorf("%s: status %d, %v", op, resp.StatusCode, all)
		}
	}
	r.same("a", randomBytes(5000))
	r.released()
}

// TestErrorTexts reads what clients receive of errors. Observe gets the cause.
func TestErrorTexts(t *testing.T) {
	r := newRig(t, s3rdma.DC, sessions, func(r *rig) {
		r.handler.Timeout = 20 * time.Millisecond
		r.handler.Next = http.HandlerFunc(func(_ http.ResponseWriter, q *http.Request) { io.Copy(io.Discard, q.Body) })
		r.handler.Allow = func(q *http.Request, _ netip.Addr) error {
			if q.Header.Get("X-Refuse") == "Allow" {
				return errNo
			}
			return nil
		}
	})
	r.net.Allow(verbstest.RemoteAccess, verbstest.Destination)
	refused := func(by string, h http.Header) http.Header { h.Set("X-Refuse", by); return h }
	put := func(h http.Header) *http.Response {
		q := must(http.NewRequestWithContext(r.ctx, http.MethodPut, r.url+"/"+bucket+"/a", nil))(t)
		q.Header = h
		return must(r.base.RoundTrip(q))(t)
	}
	token := s3rdma.Token{Addr: 1 << 20, Size: 100, RKey: 5, DCTN: 6, HasGID: true}
	r.onClient(func() { token.GID = newVerbs(r, 1).gid() })
	session := r.control("prepare", prepare()).Header.Get("X-Amz-Rdma-Session")
	ready := headers("protocol", "hipobj-rc-v2", "session", session, "cookie", "01020304", "qpn", "10203")
	const declined = "s3rdma: the server declined"
	for name, c := range map[string]struct {
		send  func() *http.Response
		text  string // all of the message, or its beginning
		cause string
	}{
		"device": {func() *http.Response { return put(headers("token", token.String())) }, "s3rdma: transfer failed",
			"READ"},
		"session": {func() *http.Response { return r.control("ready", ready) }, "s3rdma: transfer failed", "Handler.Timeout"},
		"Allow": {func() *http.Response { return put(refused("Allow", headers("token", token.String()))) }, declined,
			errNo.Error()},
		"RC": {func() *http.Response { return r.control("prepare", refused("RC", prepare())) }, declined, errNo.Error()},
		"cookie": {func() *http.Response { return r.control("prepare", prepare("cookie", "0")) },
			"s3rdma: the peer does not follow the protocol: x-amz-rdma-cookie", "cookie"},
		"token": {func() *http.Response { return put(headers("token", "x")) }, "s3rdma: malformed token: 1 characters",
			"1 characters"},
	} {
		r.served.take()
		resp := c.send()
		var got struct{ Code, Message string }
		check(t, xml.NewDecoder(resp.Body).Decode(&got))
		resp.Body.Close()
		all := r.served.take()
		whole := c.text == got.Message || name == "cookie" || name == "token"
		if !whole || !strings.HasPrefix(got.Message, c.text) || got.Code == "" || len(all) != 1 || all[0].Err == nil ||
			!strings.Contains(all[0].Err.Error(), c.cause) {
			t.Errorf("%s: status %d, %+v; Observe: %v", name, resp.StatusCode, got, all)
		}
	}
	r.released()
}

// TestLiar has a server that says that it has written the data, and has not. The client does not wait for it.
func TestLiar(t *testing.T) {
	r := newRig(t, s3rdma.RC, func(r *rig) {
		r.transport.Base = tap{RoundTripper: r.base, request: func(q *http.Request) {
			if q.Header.Get("X-Amz-Rdma-Op") == "" && strings.HasSuffix(q.URL.Path, "/ready") {
				q.URL.Path = "/lie"
			}
		}}
		front := *r.front.Load()
		r.serveBy(func(w http.ResponseWriter, q *http.Request) {
			if q.URL.Path != "/lie" {
				front(w, q)
				return
			}
			for name, value := range map[string]string{"Protocol": "hipobj-rc-v2", "Bytes-Transferred": "1000", "Etag": "x",
				"Cookie": q.Header.Get("X-Amz-Rdma-Cookie")} {
				w.Header().Set("X-Amz-Rdma-"+name, value)
			}
		})
	})
	data := randomBytes(1000)
	r.onClient(func() {
		// The PUT has metadata, and travels by HTTP.
		_, err := r.minio.PutObject(r.ctx, bucket, "a", bytes.NewReader(data), 1000,
			minio.PutObjectOptions{UserMetadata: map[string]string{"k": "v"}})
		check(t, err)
	})
	r.got.take()
	r.same("a", data)
	if n, why := r.got.byRDMA(); n != 0 || len(why) != 1 || !errors.Is(why[0], s3rdma.ErrProtocol) {
		t.Errorf("%d bytes by RDMA, %v", n, why)
	}
	r.abandoned()
}

// TestUppercase has a server that sends its numbers in uppercase digits.
func TestUppercase(t *testing.T) {
	r := newRig(t, s3rdma.RC, func(r *rig) {
		r.transport.Base = tap{RoundTripper: r.base, response: func(resp *http.Response) {
			for _, name := range []string{"Cookie", "Psn", "Qpn", "Mr-Addr", "Mr-Rkey"} {
				if v := resp.Header.Get("X-Amz-Rdma-" + name); v != "" {
					resp.Header.Set("X-Amz-Rdma-"+name, strings.ToUpper(v))
				}
			}
		}}
	})
	data := randomBytes(1000)
	for range 10 { // cookies are random, and a few have no letter
		must(r.put("a", data, minio.PutObjectOptions{}))(t)
		r.same("a", data)
		r.moved(2000)
	}
}

// TestSessionReplies has servers whose replies to control requests are wrong. The data travels by HTTP.
func TestSessionReplies(t *testing.T) {
	data := randomBytes(100_000)
	for name, c := range map[string]struct{ path, header, value string }{
		"protocol":     {"prepare", "Protocol", ""},
		"status":       {"prepare", "Reply", "501"},
		"token":        {"prepare", "Reply", "200:" + strings.Repeat("0", 88)},
		"PSN":          {"prepare", "Psn", "0"},
		"session":      {"prepare", "Session", "1"},
		"memory":       {"prepare", "Mr-Addr", "1"},
		"key":          {"prepare", "Mr-Rkey", "fffffff"},
		"no key":       {"prepare", "Mr-Rkey", ""},
		"cookie":       {"ready", "Cookie", "00000001"},
		"bytes":        {"ready", "Bytes-Transferred", "99999"},
		"no protocol":  {"ready", "Protocol", ""},
		"another ETag": {"ready", "Etag", "x"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, s3rdma.RC, func(r *rig) {
				r.transport.Base = tap{RoundTripper: r.base, response: func(resp *http.Response) {
					if strings.HasSuffix(resp.Request.URL.Path, "/.hipobj-rc/"+c.path) {
						resp.Header.Set("X-Amz-Rdma-"+c.header, c.value)
					}
				}}
			})
			r.net.Allow(verbstest.RemoteAccess)
			must(r.put("a", data, minio.PutObjectOptions{}))(t)
			r.same("a", data)
			all := r.got.take()
			var put, get int
			for _, e := range all {
				if e.RDMA && e.Method == "PUT" {
					put++
				} else if e.RDMA {
					get++
				}
			}
			// A GET needs no memory of the server, and the ETag of a PUT is for the caller.
			onlyPut := strings.HasPrefix(name, "memory") || strings.HasSuffix(name, "key")
			onlyGet := name == "another ETag"
			if (put == 1) != onlyGet || (get == 1) != onlyPut {
				t.Errorf("%d PUTs and %d GETs by RDMA: %v", put, get, fmt.Sprint(all))
			}
			if name == "session" { // the client cannot cancel what it does not know
				r.handler.ExpireSessions()
			}
			r.released()
		})
	}
}
