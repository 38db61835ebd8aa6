//go:build device

package rdma_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/sim/features"
	"github.com/goverbs/goverbs/rdma"
	"github.com/goverbs/goverbs/uverbs"
)

// TestDeviceForeignMemory uses memory that the library does not allocate as a region: sends it, reads into it, and lets
// the peer read it.
func TestDeviceForeignMemory(t *testing.T) {
	const n = 1 << 20
	t.Run("dma-buf", func(t *testing.T) {
		if _, err := os.Stat("/dev/udmabuf"); err != nil {
			features.Missing(t, features.UDMABuf, err)
		}
		b, fd := dmaBuf(t, n)
		testForeign(t, b, features.DMABuf, func(pd *uverbs.PD, a uverbs.Access) (*uverbs.MR, error) {
			return pd.RegDMABuf(fd, 0, n, 0, a&^uverbs.MWBindAccess)
		})
	})
	t.Run("on demand", func(t *testing.T) {
		b := must(unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS))(t)
		t.Cleanup(func() { check(t, unix.Munmap(b)) })
		testForeign(t, b, features.ODP, func(pd *uverbs.PD, a uverbs.Access) (*uverbs.MR, error) {
			return pd.RegMR(b, a|uverbs.OnDemand)
		})
	})
	t.Run("mapped file", func(t *testing.T) {
		fd := must(unix.MemfdCreate("region", unix.MFD_CLOEXEC))(t)
		defer unix.Close(fd)
		check(t, unix.Ftruncate(fd, n))
		b := must(unix.Mmap(fd, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED))(t)
		t.Cleanup(func() { check(t, unix.Munmap(b)) })
		testForeign(t, b, "", func(pd *uverbs.PD, a uverbs.Access) (*uverbs.MR, error) { return pd.RegMR(b, a) })
	})
	t.Run("read-only", func(t *testing.T) {
		p := connect(t, nil, nil)
		r := rdma.RegionOf(readOnlyFile(t, n, unix.MAP_SHARED))
		_, err := p.client.BufferOf(r, 0, 10)
		if isError(t, err, unix.EFAULT); !strings.Contains(err.Error(), "ReadOnlyRegion") {
			t.Errorf("the error is %v", err)
		}
		check(t, r.Close())
	})
}

// testForeign tests a region that register registers. b is its memory.
func testForeign(t *testing.T, b []byte, feature string,
	register func(*uverbs.PD, uverbs.Access) (*uverbs.MR, error)) {
	p := connect(t, nil, nil)
	ctx := limit(t)
	r := rdma.RegionFunc(len(b), register)
	t.Cleanup(func() { check(t, r.Close()) })
	for i := range b {
		b[i] = byte(i >> 8)
	}
	for _, part := range [][2]int{{0, 100}, {5000, 4096}, {4096, 300_000}, {0, len(b)}} {
		buf, err := p.client.BufferOf(r, part[0], part[1])
		if feature != "" && errors.Is(err, uverbs.ErrNotSupported) {
			features.Missing(t, feature, err)
		}
		check(t, err)
		check(t, p.client.SendBuffer(ctx, buf))
		got := must(p.server.Recv(ctx))(t).Copy()
		check(t, p.client.Flush(ctx))
		if bytes.Equal(got, b[part[0]:][:part[1]]) {
			continue
		}
		err = fmt.Errorf("%d bytes at %d: others have come", part[1], part[0])
		if feature == features.ODP {
			features.Missing(t, features.ODPOffset, err)
		}
		t.Error(err)
	}
	share := must(p.client.Share(ctx, r, rdma.CanRead|rdma.CanWrite))(t)
	token := share.Token()
	got := make([]byte, 8192)
	check(t, p.server.Read(ctx, got, token, 4096))
	if !bytes.Equal(got, b[4096:][:8192]) {
		t.Error("the peer has read other bytes")
	}
	check(t, p.server.Write(ctx, []byte("from the peer"), token, 70_000))
	if string(b[70_000:][:13]) != "from the peer" {
		t.Errorf("the peer has written %q", b[70_000:][:13])
	}
	check(t, share.Revoke())
}
