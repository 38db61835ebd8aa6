package onesided

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
)

func TestPutGet(t *testing.T) {
	r := newRig(t)
	for _, n := range []int{1, 4096, 50001, bufferSize} {
		data := randomBytes(n)
		r.byRDMA(r.put("a", data), n)
		r.byRDMA(r.get("a", data), n)
	}
	r.allFree()
	if n := len(r.handler.links.byPeer); n != 1 {
		t.Errorf("the server has %d links for one request at a time, want 1", n)
	}
}

func TestRanges(t *testing.T) {
	r := newRig(t)
	data := randomBytes(3 * bufferSize)
	r.byRDMA(r.put("large", data), -1) // longer than a buffer
	if resp := r.get("large", data); Refused(resp) == "" {
		t.Error("no reason for TCP")
	}
	for _, c := range []struct {
		bytes      string
		begin, end int
	}{{"0-0", 0, 1}, {"70000-120000", 70000, 120001}, {"-1000", 3*bufferSize - 1000, 3 * bufferSize}} {
		resp := r.get("large", data[c.begin:c.end], "Range", "bytes="+c.bytes)
		r.byRDMA(resp, c.end-c.begin)
		want := fmt.Sprintf("bytes %d-%d/%d", c.begin, c.end-1, len(data))
		if got := resp.Header.Get("Content-Range"); resp.StatusCode != http.StatusPartialContent || got != want {
			t.Errorf("range %s: %s, %q, want %q", c.bytes, resp.Status, got, want)
		}
	}
	for name, want := range map[string]int{"large": http.StatusRequestedRangeNotSatisfiable, "none": http.StatusNotFound} {
		resp, err := r.do(r.ctx, http.MethodGet, name, nil, "Range", "bytes=999999-")
		if err != nil || resp.StatusCode != want {
			t.Fatalf("%s: %v, %v, want %d", name, resp, err, want)
		}
		resp.Body.Close()
	}
	r.allFree()
}

func TestBytes(t *testing.T) {
	r := newRig(t)
	data := randomBytes(1000)
	r.put("a", data)
	resp, err := r.do(r.ctx, http.MethodGet, "a", nil)
	if err != nil {
		t.Fatal(err)
	}
	body, ok := resp.Body.(*Body)
	if !ok || !bytes.Equal(body.Bytes(), data) || resp.ContentLength != 1000 {
		t.Errorf("body %T of %d bytes, want a *Body with the data", resp.Body, resp.ContentLength)
	}
	body.Close()
	body.Close() // releases the buffer once
	r.allFree()
}

// TestConcurrent has more requests at a time than buffers.
func TestConcurrent(t *testing.T) {
	r := newRig(t)
	var wg sync.WaitGroup
	for i := range 3 * buffers {
		wg.Go(func() {
			data, name := randomBytes(1000*(i+1)), fmt.Sprint(i)
			for range 3 {
				r.byRDMA(r.put(name, data), len(data))
				r.byRDMA(r.get(name, data), len(data))
			}
		})
	}
	wg.Wait()
	r.allFree()
	if n := len(r.handler.links.byPeer); n > buffers {
		t.Errorf("the server has %d links, for %d requests at a time", n, buffers)
	}
}

func TestNoDevice(t *testing.T) {
	for _, c := range []struct{ client, server bool }{{true, false}, {false, true}, {false, false}} {
		t.Run(fmt.Sprintf("client=%v,server=%v", c.client, c.server), func(t *testing.T) {
			r := newRig(t)
			data := randomBytes(5000)
			at, from := *r.transport.Pool, *r.handler.Pool
			if !c.client {
				r.transport.Pool = nil
			}
			if !c.server {
				r.handler.Pool = nil
			}
			r.byRDMA(r.put("a", data), -1)
			r.byRDMA(r.get("a", data), -1)
			r.transport.Close()
			r.transport.Pool, r.handler.Pool = &at, &from // for Close
		})
	}
}

// TestForeignServer has a server without a Handler.
func TestForeignServer(t *testing.T) {
	r := newRig(t)
	r.front.Store(http.HandlerFunc(r.store.ServeHTTP))
	data := randomBytes(5000)
	for range 2 {
		r.byRDMA(r.put("a", data), -1)
		r.byRDMA(r.get("a", data), -1)
	}
	r.allFree()
}

// A tap changes the token of requests, and responses.
type tap struct {
	http.RoundTripper
	request  func(Token) string
	response func(http.Header)
}

func (l tap) RoundTrip(r *http.Request) (*http.Response, error) {
	t, err := ParseToken(r.Header.Get(headerToken))
	if err == nil && l.request != nil {
		r.Header.Set(headerToken, l.request(t))
	}
	resp, err := l.RoundTripper.RoundTrip(r)
	if err == nil && l.response != nil {
		l.response(resp.Header)
	}
	return resp, err
}

func TestChecksum(t *testing.T) {
	r := newRig(t)
	data := randomBytes(5000)
	r.put("a", data)
	r.transport.Base = tap{RoundTripper: r.transport.Base, response: func(h http.Header) { h.Set(headerCRC, "00000000") }}
	if _, err := r.do(r.ctx, http.MethodGet, "a", nil); !errors.Is(err, ErrChecksum) {
		t.Errorf("a wrong CRC: %v, want ErrChecksum", err)
	}
	r.transport.Base = tap{RoundTripper: r.transport.Base, response: func(h http.Header) { h.Set(headerLength, "999999") }}
	if _, err := r.do(r.ctx, http.MethodGet, "a", nil); !errors.Is(err, ErrResponse) {
		t.Errorf("a wrong length: %v, want ErrResponse", err)
	}
	r.allFree()
}

// TestPutChecksum changes the data after its CRC was computed.
func TestPutChecksum(t *testing.T) {
	r := newRig(t)
	data := randomBytes(5000)
	r.put("a", data)
	next := r.handler.ServeHTTP
	r.front.Store(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if q.Header.Get(headerCRC) != "" {
			q.Header.Set(headerCRC, "00000000")
		}
		next(w, q)
	}))
	r.byRDMA(r.put("b", data), -1) // repeated over TCP
	r.allFree()
}

func TestToken(t *testing.T) {
	want := Token{Transport: "rc", Addr: 0x7f2a10000000, Length: 1 << 20, RKey: 0x1a2b3,
		Peer: "0000:000123:a1b2c3:00000000000000000000ffff0a090001:5:16"}
	text := "1;rc;00007f2a10000000;1048576;0001a2b3;0000:000123:a1b2c3:00000000000000000000ffff0a090001:5:16"
	if got, err := ParseToken(text); err != nil || got != want || got.String() != text {
		t.Errorf("%+v (%v), want %+v", got, err, want)
	}
	for _, bad := range []string{
		"", text + ";", "2" + text[1:], strings.Replace(text, "1048576", "-1", 1),
		strings.Replace(text, "1048576", "4294967295", 1), strings.Replace(text, "1048576", "+1", 1),
		strings.Replace(text, "00007f2a10000000", "ffffffffffffffff", 1),
		strings.Replace(text, "0001a2b3", "1a2b3", 1), text + strings.Repeat("0", maxToken),
	} {
		if _, err := ParseToken(bad); !errors.Is(err, ErrToken) {
			t.Errorf("ParseToken(%q): %v, want ErrToken", bad, err)
		}
	}
}

// A slowWriter waits after it has sent data.
type slowWriter struct {
	http.ResponseWriter
	proceed <-chan struct{}
}

func (w slowWriter) Write(p []byte) (int, error) {
	defer func() { <-w.proceed }()
	return w.ResponseWriter.Write(p)
}

// TestLinkReturned has a request that uses the link of one whose response is still being sent.
func TestLinkReturned(t *testing.T) {
	r := newRig(t)
	data := randomBytes(2 * bufferSize)
	r.store.m.Store("/large", data)
	r.put("a", data[:1000])
	proceed := make(chan struct{})
	r.front.Store(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if q.URL.Path == "/large" {
			w = slowWriter{w, proceed}
		}
		r.handler.ServeHTTP(w, q)
	}))
	resp, err := r.do(r.ctx, http.MethodGet, "large", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.byRDMA(r.get("a", data[:1000]), 1000)
	close(proceed)
	if err := resp.Body.Close(); err != nil {
		t.Error(err)
	}
	r.allFree()
}
