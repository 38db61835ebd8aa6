package rdma_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/sim/features"
	"github.com/goverbs/goverbs/rdma"
	"github.com/goverbs/goverbs/uverbs"
)

// readOnlyFile returns the memory of a file with n bytes that was opened for reading, and is mapped.
func readOnlyFile(t *testing.T, n, flags int) []byte {
	t.Helper()
	name := filepath.Join(t.TempDir(), "file")
	check(t, os.WriteFile(name, pattern(n, 1), 0o600))
	fd := must(unix.Open(name, unix.O_RDONLY|unix.O_CLOEXEC, 0))(t)
	defer unix.Close(fd)
	b := must(unix.Mmap(fd, 0, n, unix.PROT_READ, flags))(t)
	t.Cleanup(func() { check(t, unix.Munmap(b)) })
	return b
}

// TestReadOnlyRegion sends and writes parts of files that are mapped for reading, and shares them. Nothing changes
// them.
func TestReadOnlyRegion(t *testing.T) {
	for name, flags := range map[string]int{"shared": unix.MAP_SHARED, "private": unix.MAP_PRIVATE} {
		t.Run(name, func(t *testing.T) { testReadOnly(t, readOnlyFile(t, 1<<20, flags)) })
	}
}

func testReadOnly(t *testing.T, file []byte) {
	p := connect(t, nil, nil)
	ctx := limit(t)
	r := rdma.ReadOnlyRegion(file)
	t.Cleanup(func() { check(t, r.Close()) })
	remote, s := p.share(t, 1<<20, allRights)
	for i, n := range []int{0, 1, 128, 129, 4096, 4097, 300000} {
		off := 1000*i + 1
		want := file[off : off+n]
		part := func() rdma.Buffer {
			b, err := p.client.BufferOf(r, off, n)
			if errors.Is(err, unix.EFAULT) {
				features.Missing(t, features.ReadOnlyFiles, err)
			}
			return must(b, err)(t)
		}
		check(t, p.client.SendBuffer(ctx, part()))
		if got := must(p.server.Recv(ctx))(t).Copy(); !bytes.Equal(got, want) {
			t.Errorf("%d bytes: others have arrived", n)
		}
		b := part()
		check(t, p.client.WriteBuffer(ctx, b, s.Token(), 7))
		if !bytes.Equal(remote.Bytes()[7:7+n], want) {
			t.Errorf("%d bytes: others were written", n)
		}
		slice := must(b.Slice(0, n))(t)
		if n > 0 {
			isError(t, p.client.ReadBuffer(ctx, slice, s.Token(), 7), rdma.ErrReadOnly)
		}
		batch := p.client.NewBatch()
		batch.Read(slice, s.Token(), 7)
		isError(t, batch.Do(ctx), rdma.ErrReadOnly)
		slice.Release()
		_, err := p.client.CallInto(ctx, nil, b)
		isError(t, err, rdma.ErrReadOnly)
	}
	for _, rights := range []rdma.Rights{rdma.CanWrite, rdma.CanAtomic, allRights} {
		_, err := p.server.Share(ctx, r, rights)
		isError(t, err, rdma.ErrReadOnly)
	}
	shared, err := p.server.Share(ctx, r, rdma.CanRead)
	if p.server.CM().QP().Context().Device().Driver() == "mlx5" {
		got := make([]byte, 8192)
		check(t, p.client.Read(ctx, got, must(shared, err)(t).Token(), 4096))
		if !bytes.Equal(got, file[4096:][:8192]) {
			t.Error("the peer has read other bytes")
		}
		check(t, shared.Revoke())
	} else {
		isError(t, err, uverbs.ErrNotSupported)
	}
	check(t, p.client.Flush(ctx))
	if !bytes.Equal(file, pattern(len(file), 1)) {
		t.Error("the file has changed")
	}
}
