package s3rdma_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"

	"github.com/minio/minio-go/v7"

	"github.com/goverbs/goverbs/s3rdma"
	"github.com/goverbs/goverbs/uverbs"
	"github.com/goverbs/goverbs/verbstest"
)

// TestHosts has servers that do not trust each other. A token of one does not lead to the memory that is offered to
// another, whose key it has guessed, and the number of targets has a limit.
func TestHosts(t *testing.T) {
	var tokens []s3rdma.Token
	var during func(s3rdma.Token) // is called while a request is in progress
	r := newRig(t, s3rdma.DC, unsigned, func(r *rig) {
		r.base.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "tcp", r.http.Listener.Addr().String())
		}
		r.transport.Base = tap{RoundTripper: r.base, request: func(q *http.Request) {
			if text := q.Header.Get("X-Amz-Rdma-Token"); text != "" && q.Method == http.MethodGet {
				tokens = append(tokens, must(s3rdma.ParseToken(text))(r))
				during(tokens[len(tokens)-1])
			}
		}}
	})
	r.net.Allow(verbstest.RemoteAccess)
	data := randomBytes(1000)
	must(r.put("a", data, minio.PutObjectOptions{}))(t)
	var v *verbs
	r.onServer(func() { v = newVerbs(r, len(data)) })
	get := func(host string) {
		t.Helper()
		q := must(http.NewRequestWithContext(r.ctx, http.MethodGet, "http://"+host+"/"+bucket+"/a", nil))(t)
		r.onClient(func() {
			resp := must(r.transport.RoundTrip(q))(t)
			if got := must(io.ReadAll(resp.Body))(t); string(got) != string(data) {
				t.Errorf("%s: %d bytes, or other ones", host, len(got))
			}
			check(t, resp.Body.Close())
		})
	}
	during = func(s3rdma.Token) {}
	get("one")
	during = func(other s3rdma.Token) {
		other.Size = 8
		for _, c := range []struct {
			dctn    uint32
			refused bool
		}{{tokens[0].DCTN, true}, {other.DCTN, false}} {
			other.DCTN = c.dctn
			r.onServer(func() {
				_, err := v.try(uverbs.OpWrite, other.String())
				if c.refused != errors.Is(err, uverbs.WCRemAccessErr) || !c.refused && err != nil {
					t.Errorf("DCT %#x: %v, want it refused: %v", c.dctn, err, c.refused)
				}
			})
		}
	}
	get("two")
	during = func(s3rdma.Token) {}
	get("one")
	if tokens[0].DCTN != tokens[2].DCTN {
		t.Errorf("two requests to one host have DCTs %#x and %#x", tokens[0].DCTN, tokens[2].DCTN)
	}
	for i := range 2 * s3rdma.MostTargets {
		get(fmt.Sprint("host", i))
	}
	if n := r.transport.Targets(); n != s3rdma.MostTargets {
		t.Errorf("%d targets, want %d", n, s3rdma.MostTargets)
	}
	r.released()
}
