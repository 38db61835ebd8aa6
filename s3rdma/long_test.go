//go:build soak || device

package s3rdma_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/goverbs/goverbs/s3rdma"
	"github.com/goverbs/goverbs/verbstest"
	"github.com/minio/minio-go/v7"
)

// patience is more than a loaded machine needs.
const patience = time.Hour

// moveAll stores and reads size bytes with minio-go, by HTTP if service is "". It reports the bytes on TCP and the CPU
// time of the process, which includes client, server and the devices in memory. There is no SHA-256: QEMU emulates its
// instructions so slowly that it would take most of the time of a guest.
func moveAll(t *testing.T, n *verbstest.Network, service s3rdma.Service, size int) {
	ctx := t.Context() // a test that hangs ends with the stacks of all goroutines
	var tcp atomic.Int64
	want := int64(size)
	r := newRigOn(t, n, service, func(r *rig) {
		r.base.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
			c, err := (&net.Dialer{}).DialContext(ctx, network, addr)
			return &counted{c, &tcp}, err
		}
		r.handler.MaxWait, r.handler.Timeout = patience, patience
		if service == "" {
			want = 0
			r.transport.Device.Close()
			r.transport.Device = nil
		}
	})
	report := func(what string, run func()) {
		tcp.Store(0)
		before, start := cpuTime(t), time.Now()
		r.onClient(run)
		t.Logf("%s of %d MiB: %.1f s of CPU, %.1f s, %d KiB on TCP", what, size>>20, (cpuTime(t) - before).Seconds(),
			time.Since(start).Seconds(), tcp.Load()>>10)
		if n, why := r.got.byRDMA(); n != want || want > 0 && why != nil {
			t.Errorf("%s: %d bytes by RDMA, %v", what, n, why)
		}
	}
	object, part := size, min(64<<20, size/4)
	if service == s3rdma.RC { // sessions have no parts
		object, part = 64<<20, 64<<20
	}
	data := randomBytes(1<<20 + 1) // parts of an object differ
	report("PUT", func() {
		source := &repeated{data: data, left: size}
		for i := range size / object {
			must(r.minio.PutObject(ctx, bucket, fmt.Sprint(i), io.LimitReader(source, int64(object)), int64(object),
				minio.PutObjectOptions{PartSize: uint64(part), NumThreads: 2, DisableContentSha256: true}))(t)
		}
	})
	report("GET", func() {
		source := &repeated{data: data, left: size}
		for i := range size / object {
			o := must(r.minio.GetObject(ctx, bucket, fmt.Sprint(i), minio.GetObjectOptions{}))(t)
			must(io.Copy(source, o))(t)
			o.Close()
		}
		if source.left > 0 {
			t.Errorf("%d bytes are missing", source.left)
		}
	})
	r.released()
}

// A repeated is a reader of data, again and again, and a writer that expects it.
type repeated struct {
	data []byte
	at   int
	left int
}

func (r *repeated) Read(p []byte) (int, error) {
	if r.left == 0 {
		return 0, io.EOF
	}
	n := copy(p[:min(len(p), r.left)], r.data[r.at:])
	r.at = (r.at + n) % len(r.data)
	r.left -= n
	return n, nil
}

var errOther = errors.New("the object has other data")

func (r *repeated) Write(p []byte) (n int, err error) {
	for n < len(p) {
		want := r.data[r.at:][:min(len(p)-n, len(r.data)-r.at)]
		if len(want) > r.left || !bytes.Equal(p[n:][:len(want)], want) {
			return n, errOther
		}
		n += len(want)
		r.at = (r.at + len(want)) % len(r.data)
		r.left -= len(want)
	}
	return n, nil
}

// A counted connection counts bytes.
type counted struct {
	net.Conn
	n *atomic.Int64
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.n.Add(int64(n))
	return n, err
}

func (c *counted) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	c.n.Add(int64(n))
	return n, err
}

func cpuTime(t *testing.T) time.Duration {
	var u syscall.Rusage
	check(t, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
