//go:build device

package rdma_test

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/sim/usertest"
	"github.com/goverbs/goverbs/rdma"
	"github.com/goverbs/goverbs/uverbs"
)

// TestDeviceMemlock has an ordinary user reach the limit on locked memory. What registers memory fails and changes
// nothing, and a message for which there is no memory is received when there is.
func TestDeviceMemlock(t *testing.T) {
	if !usertest.Run(t) {
		return
	}
	p := connect(t, nil, nil)
	ctx := limit(t)
	const long = 1 << 20
	want := pattern(long, 1)
	b := must(p.client.Alloc(long))(t)
	copy(b.Bytes(), want)
	roundTrip(t, p) // so that the memory for calls is registered

	setMemlock := func(n uint64) {
		var l unix.Rlimit
		check(t, unix.Getrlimit(unix.RLIMIT_MEMLOCK, &l))
		l.Cur = min(n, l.Max)
		check(t, unix.Setrlimit(unix.RLIMIT_MEMLOCK, &l))
	}
	setMemlock(4096)
	isError(t, p.client.Send(ctx, want), uverbs.ErrMemlock)
	_, err := p.client.Alloc(long)
	isError(t, err, uverbs.ErrMemlock)
	region := rdma.RegionOf(make([]byte, long))
	_, err = p.client.BufferOf(region, 0, long)
	isError(t, err, uverbs.ErrMemlock)
	_, err = p.client.Share(ctx, region, rdma.CanRead)
	isError(t, err, uverbs.ErrMemlock)
	roundTrip(t, p)

	check(t, p.client.SendBuffer(ctx, b))
	for range 2 {
		_, err = p.server.Recv(ctx)
		isError(t, err, uverbs.ErrMemlock)
	}
	setMemlock(unix.RLIM_INFINITY)
	m := must(p.server.Recv(ctx))(t)
	if string(m.Bytes()) != string(want) {
		t.Errorf("another message of %d bytes", m.Len())
	}
	m.Release()
	part := must(p.client.BufferOf(region, 0, long))(t)
	part.Release()
	check(t, region.Close())
}
