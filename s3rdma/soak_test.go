//go:build soak

package s3rdma_test

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/goverbs/goverbs/s3rdma"
	"github.com/minio/minio-go/v7"
)

// gigabyte is the length of the object of TestSoak.
const gigabyte = 1 << 30

// TestSoak stores and reads 1 GiB with minio-go, in each form of the wire and by HTTP. It reports the
// bytes on TCP and the CPU time of the process, which includes client, server and the devices in memory.
func TestSoak(t *testing.T) {
	for _, service := range []s3rdma.Service{s3rdma.DC, s3rdma.RC, "http"} {
		t.Run(string(service), func(t *testing.T) { soak(t, service) })
	}
}

func soak(t *testing.T, service s3rdma.Service) {
	var tcp atomic.Int64
	want := int64(gigabyte)
	r := newRig(t, service, func(r *rig) {
		r.base.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
			c, err := (&net.Dialer{}).DialContext(ctx, network, addr)
			return &counted{c, &tcp}, err
		}
		if service == "http" {
			want = 0
			r.transport.Device.Close()
			r.transport.Device = nil
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
	defer cancel()
	data := randomBytes(1 << 20)
	sum := sha256.New()
	for range gigabyte >> 20 {
		sum.Write(data)
	}
	report := func(what string, run func()) {
		tcp.Store(0)
		before, start := cpuTime(t), time.Now()
		r.client.Run(run)
		t.Logf("%s of 1 GiB: %.1f s of CPU, %.1f s, %d KiB on TCP", what, (cpuTime(t) - before).Seconds(),
			time.Since(start).Seconds(), tcp.Load()>>10)
		if n, why := r.got.byRDMA(); n != want || want > 0 && why != nil {
			t.Errorf("%s: %d bytes by RDMA, %v", what, n, why)
		}
	}
	size := gigabyte
	if service == s3rdma.RC { // sessions have no parts
		size = 64 << 20
	}
	report("PUT", func() {
		for i := range gigabyte / size {
			must(r.minio.PutObject(ctx, bucket, fmt.Sprint(i), &repeated{data: data, left: size}, int64(size),
				minio.PutObjectOptions{PartSize: 64 << 20, NumThreads: 2}))(t)
		}
	})
	got := sha256.New()
	report("GET", func() {
		for i := range gigabyte / size {
			o := must(r.minio.GetObject(ctx, bucket, fmt.Sprint(i), minio.GetObjectOptions{}))(t)
			must(io.Copy(got, o))(t)
			o.Close()
		}
	})
	if string(got.Sum(nil)) != string(sum.Sum(nil)) {
		t.Error("the object has other data")
	}
	r.released()
}

// A repeated is a reader of data, again and again.
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
