package s3rdma_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/minio/minio-go/v7"

	"github.com/goverbs/goverbs/s3rdma"
	"github.com/goverbs/goverbs/verbstest"
)

// moving reports whether the data of a request that Next sees is that of a token or a session.
func moving(q *http.Request) bool {
	return q.Header.Get("X-Amz-Rdma-Token") != "" || q.Header.Get("Authorization") == ""
}

// late makes the PUT of an object return with status 503 before its body was read. read goes on reading, and returns
// when it has begun. The context of the request outlives it, as with some servers.
func (r *rig) late(read func(body io.Reader)) {
	front := *r.front.Load()
	r.handler.Next = http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if q.Method == http.MethodPut && strings.HasSuffix(q.URL.Path, "/late") && moving(q) {
			read(q.Body)
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		r.plain.ServeHTTP(w, q)
	})
	r.serveBy(func(w http.ResponseWriter, q *http.Request) {
		front(w, q.WithContext(context.WithoutCancel(q.Context())))
	})
}

// TestLateReader has handlers that read the body of a PUT when ServeHTTP has returned, and the buffer has the data of
// another request, or is gone. They get an error.
func TestLateReader(t *testing.T) {
	for name, first := range map[string]int{"from the beginning": 0, "from the middle": 10} {
		for _, end := range []string{"buffer in use", "closed"} {
			t.Run(name+", "+end, func(t *testing.T) {
				forms(t, func(r *rig) { r.lateReader(first, end == "closed") },
					func(r *rig) { r.handler.MaxTransfers = 1 })
			})
		}
	}
}

func (r *rig) lateReader(first int, closed bool) {
	goOn, read := make(chan bool), make(chan error, 1)
	var rest []byte
	r.late(func(body io.Reader) {
		must(io.ReadFull(body, make([]byte, first)))(r)
		go func() {
			<-goOn
			var err error
			rest, err = io.ReadAll(body)
			read <- err
		}()
	})
	must(r.put("late", bytes.Repeat([]byte{'A'}, 100_000), minio.PutObjectOptions{}))(r)
	must(r.put("other", bytes.Repeat([]byte{'B'}, 100_000), minio.PutObjectOptions{}))(r)
	if closed {
		r.serving.Wait()
		check(r, r.handler.Close())
	}
	close(goOn)
	if err := <-read; !errors.Is(err, http.ErrBodyReadAfterClose) || len(rest) > 0 {
		r.Errorf("a late reader has %d bytes, %d of them another request's, and %v", len(rest),
			bytes.Count(rest, []byte{'B'}), err)
	}
	r.released()
	r.got.take()
	if closed {
		return
	}
	must(r.put("last", randomBytes(1000), minio.PutObjectOptions{}))(r)
	if n, why := r.got.byRDMA(); n != 1000 {
		r.Errorf("a later PUT has moved %d bytes: %v", n, why)
	}
}

// TestLateTransfer has a handler that returns while the device reads the client's memory. The transfer ends before
// another one has its buffer and queue pair.
func TestLateTransfer(t *testing.T) {
	r := newRig(t, s3rdma.DC, func(r *rig) { r.handler.MaxTransfers = 1 })
	read := make(chan error, 1)
	r.late(func(body io.Reader) {
		go func() {
			_, err := io.ReadAll(body)
			read <- err
		}()
		r.underway()
	})
	heal := r.net.AddFault(verbstest.PacketFault{Action: verbstest.Drop, To: r.client})
	must(r.put("late", randomBytes(1000), minio.PutObjectOptions{}))(t)
	heal()
	r.released()
	r.got.take()
	must(r.put("next", randomBytes(1000), minio.PutObjectOptions{}))(t)
	if n, why := r.got.byRDMA(); n != 1000 {
		t.Errorf("a later PUT has moved %d bytes: %v", n, why)
	}
	if err := <-read; !errors.Is(err, s3rdma.ErrTransfer) && !errors.Is(err, http.ErrBodyReadAfterClose) {
		t.Error(err)
	}
}
