package s3rdma_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/s3rdma"
	"github.com/goverbs/goverbs/uverbs"
)

// The tests in this file have a peer that knows nothing of the package: numbers and layouts are written down here once
// more. They are those of libs3rdma.

const wireKey = 0xffeeddcc

// A verbs is what a peer needs of its device.
type verbs struct {
	testing.TB
	ctx *uverbs.Context
	pd  *uverbs.PD
	cq  *uverbs.CQ
	mr  *uverbs.MR
}

func newVerbs(r *rig, n int) *verbs {
	v := &verbs{TB: r.TB, ctx: must(uverbs.Open(""))(r)}
	v.pd = must(v.ctx.AllocPD())(r)
	v.cq = must(v.ctx.CreateCQ(uverbs.CQConfig{Entries: 4}))(r)
	v.mr = must(v.pd.Alloc(n, uverbs.LocalWrite|uverbs.RemoteWrite|uverbs.RemoteRead))(r)
	r.Cleanup(func() { check(r, v.ctx.Close()) })
	return v
}

// gid returns the address of the device.
func (v *verbs) gid() uverbs.GID {
	qp := must(v.pd.CreateQP(uverbs.QPConfig{Type: uverbs.UD, SendCQ: v.cq, MaxSendWR: 1}))(v)
	return must(qp.Endpoint())(v).GID
}

// token returns the descriptor of the memory, and a new DCT.
func (v *verbs) token() string {
	srq := must(v.pd.CreateSRQ(uverbs.SRQConfig{MaxWR: 1}))(v)
	dct := must(v.pd.CreateQP(uverbs.QPConfig{Type: uverbs.DCT, RecvCQ: v.cq, SRQ: srq, DCKey: wireKey,
		Access: uverbs.RemoteRead | uverbs.RemoteWrite}))(v)
	check(v, dct.Ready())
	e := must(dct.Endpoint())(v)
	return fmt.Sprintf("%016x:%08x:%08x:%04x:%06x:%01x:%032x", v.mr.Addr(), v.mr.Len(), v.mr.RKey(), e.LID, e.QPN, 1,
		e.GID[:])
}

// move moves the memory to or from that of a token.
func (v *verbs) move(op uverbs.Opcode, token string) int {
	n, err := v.try(op, token)
	check(v, err)
	return n
}

// try is move, which the client's device may refuse.
func (v *verbs) try(op uverbs.Opcode, token string) (int, error) {
	var addr uint64
	var size, key, lid, dctn, has uint32
	var gid []byte
	must(fmt.Sscanf(token, "%x:%x:%x:%x:%x:%x:%x", &addr, &size, &key, &lid, &dctn, &has, &gid))(v)
	dci := must(v.pd.CreateQP(uverbs.QPConfig{Type: uverbs.DCI, SendCQ: v.cq, MaxSendWR: 1}))(v)
	check(v, dci.Ready())
	ah := must(v.pd.CreateAH(must(dci.AHAttr(uverbs.Endpoint{GID: uverbs.GID(gid)}))(v)))(v)
	n := min(int(size), v.mr.Len())
	must(dci.PostSend(uverbs.SendWR{Opcode: op, Flags: uverbs.Signaled, SGL: []uverbs.SGE{v.mr.SGE(0, n)},
		RemoteAddr: addr, RKey: key, AH: ah, QPN: dctn, DCKey: wireKey}))(v)
	var wc [1]uverbs.WC
	must(v.cq.PollWait(v.Context(), wc[:]))(v)
	return n, wc[0].Err()
}

// TestClientByHand has a client that is not a Transport.
func TestClientByHand(t *testing.T) {
	r := newRig(t, s3rdma.DC, unsigned)
	data := randomBytes(1 << 20)
	r.onClient(func() {
		v := newVerbs(r, len(data))
		token := v.token()
		send := func(method string) *http.Response {
			q := must(http.NewRequestWithContext(r.ctx, method, r.url+"/"+bucket+"/a", nil))(t)
			q.Header.Set("x-amz-rdma-token", token)
			q.Header.Set("x-amz-content-sha256", "UNSIGNED-PAYLOAD")
			resp := must(r.base.RoundTrip(q))(t)
			if body := must(io.ReadAll(resp.Body))(t); len(body) != 0 || resp.Header.Get("x-amz-rdma-reply") != "200" {
				t.Errorf("%s: %s, %v, %q", method, resp.Status, resp.Header, body)
			}
			resp.Body.Close()
			return resp
		}
		copy(v.mr.Bytes(), data)
		if etag := send(http.MethodPut).Header.Get("ETag"); etag == "" {
			t.Error("no ETag")
		}
		clear(v.mr.Bytes())
		if n := send(http.MethodGet).Header.Get("x-amz-rdma-bytes-transferred"); n != fmt.Sprint(len(data)) {
			t.Errorf("%q bytes", n)
		}
		if !bytes.Equal(v.mr.Bytes(), data) {
			t.Error("the memory has other data")
		}
	})
}

// A serverByHand is a server that is not a Handler, and has one object.
type serverByHand struct {
	v      *verbs
	object []byte
}

func (s *serverByHand) RoundTrip(q *http.Request) (*http.Response, error) {
	resp := &http.Response{Status: "200 OK", StatusCode: 200, Header: http.Header{}, Body: http.NoBody, Request: q}
	token := q.Header.Get("x-amz-rdma-token")
	if len(token) != 81 || q.ContentLength != 0 || q.Header.Get("x-amz-content-sha256") != "UNSIGNED-PAYLOAD" {
		s.v.Errorf("%s: token %q, %d bytes, %v", q.Method, token, q.ContentLength, q.Header)
	}
	if q.Method == http.MethodPut { // without a reply, as the wire allows
		n := s.v.move(uverbs.OpRead, token)
		s.object = bytes.Clone(s.v.mr.Bytes()[:n])
		resp.Header.Set("ETag", `"x"`)
		return resp, nil
	}
	copy(s.v.mr.Bytes(), s.object)
	n := min(len(s.object), s.v.move(uverbs.OpWrite, token))
	resp.StatusCode, resp.Status = 206, "206 Partial Content"
	resp.Header.Set("x-amz-rdma-reply", "206")
	resp.Header.Set("x-amz-rdma-bytes-transferred", fmt.Sprint(n))
	resp.Header.Set("Content-Range", fmt.Sprintf("bytes 0-%d/%d", n-1, len(s.object)))
	return resp, nil
}

// TestServerByHand has a server that is not a Handler.
func TestServerByHand(t *testing.T) {
	s := &serverByHand{}
	r := newRig(t, s3rdma.DC)
	r.onServer(func() { s.v = newVerbs(r, 1<<20) })
	data := randomBytes(1 << 20)
	r.onClient(func() {
		transport := &s3rdma.Transport{Base: s, Device: r.transport.Device, AcceptETag: true, Observe: r.got.add}
		defer func() { check(t, transport.Close()) }()
		for _, method := range []string{http.MethodPut, http.MethodGet} {
			q := must(http.NewRequestWithContext(r.ctx, method, r.url+"/"+bucket+"/a", nil))(t)
			if method == http.MethodPut {
				q = must(http.NewRequestWithContext(r.ctx, method, r.url+"/"+bucket+"/a", bytes.NewReader(data)))(t)
			}
			resp := must(transport.RoundTrip(q))(t)
			got := must(io.ReadAll(resp.Body))(t)
			resp.Body.Close()
			if method == http.MethodGet && !bytes.Equal(got, data) {
				t.Errorf("%d bytes, or other ones", len(got))
			}
		}
	})
	if n, why := r.got.byRDMA(); n != int64(2*len(data)) || why != nil || !bytes.Equal(s.object, data) {
		t.Errorf("%d bytes by RDMA (%v), and the server has %d", n, why, len(s.object))
	}
}

// TestTokenOfLibrary parses a token that libs3rdma 0.3.0 has made on a machine in memory.
func TestTokenOfLibrary(t *testing.T) {
	const text = "00007f0c403ce000:00100000:00001000:0000:000040:1:00000000000000000000ffffc0000202"
	token, err := s3rdma.ParseToken(text)
	if err != nil || token.Addr != 0x7f0c403ce000 || token.Size != 1<<20 || token.RKey != 0x1000 || token.LID != 0 ||
		token.DCTN != 0x40 || !token.HasGID || token.GID.String() != "::ffff:192.0.2.2" {
		t.Errorf("%+v, %v", token, err)
	}
	if got := token.String(); !strings.EqualFold(got, text) {
		t.Errorf("%s, want %s", got, text)
	}
}
