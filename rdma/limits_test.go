package rdma_test

import (
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/rdma"
	"github.com/goverbs/goverbs/uverbs"
)

// isText checks that an error matches want and names all parts.
func isText(t testing.TB, err, want error, parts ...string) {
	t.Helper()
	isError(t, err, want)
	for _, part := range parts {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q does not name %q", err, part)
		}
	}
}

// TestShareLimits checks that a share that adapters do not support is refused before the connection is touched, and
// that a long region can be shared in ranges.
func TestShareLimits(t *testing.T) {
	t.Parallel()
	p := connect(t, nil, nil)
	ctx := limit(t)
	const most = 1 << 31
	mem := must(unix.Mmap(-1, 0, 2*most, unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE))(t)
	defer func() { check(t, unix.Munmap(mem)) }()
	r := rdma.RegionOf(mem)
	defer func() { check(t, r.Close()) }()
	_, err := p.server.Share(ctx, r, rdma.CanRead)
	isText(t, err, rdma.ErrTooLong, "4294967296", "2147483648", "ShareRange")
	_, err = p.server.ShareRange(ctx, r, 7, most+1, rdma.CanRead)
	isText(t, err, rdma.ErrTooLong, "2147483649")
	roundTrip(t, p)
	if onKernel {
		return // the rest would pin 4 GiB
	}
	for _, off := range []int{0, most} {
		s := must(p.server.ShareRange(ctx, r, off, most, rdma.CanRead|rdma.CanWrite))(t)
		check(t, p.client.Write(ctx, []byte("end"), s.Token(), most-3))
		if got := string(mem[off+most-3 : off+most]); got != "end" {
			t.Errorf("the range at %#x ends with %q", off, got)
		}
	}
	roundTrip(t, p)
}

// TestAlignment checks that memory that is not aligned cannot be shared for atomic operations, and that an operation
// that is not aligned is refused as such.
func TestAlignment(t *testing.T) {
	p := connect(t, nil, nil)
	ctx := limit(t)
	r, s := p.share(t, 64, allRights)
	for _, off := range []int{1, 4, 7, 50} {
		_, err := p.client.FetchAdd(ctx, s.Token(), off, 1)
		isText(t, err, rdma.ErrMisaligned, "multiple of 8")
		_, err = p.client.CompareAndSwap(ctx, s.Token(), off, 0, 1)
		isError(t, err, rdma.ErrMisaligned)
	}
	_, err := p.server.ShareRange(ctx, r, 3, 16, rdma.CanAtomic)
	isText(t, err, rdma.ErrMisaligned, "CanAtomic", "3 bytes past")
	_, err = p.server.Share(ctx, rdma.RegionOf(r.Bytes()[1:]), allRights)
	isError(t, err, rdma.ErrMisaligned)
	odd := must(p.server.ShareRange(ctx, r, 3, 16, rdma.CanRead))(t)
	check(t, p.client.Read(ctx, make([]byte, 16), odd.Token(), 0))
	_, err = p.client.FetchAdd(ctx, odd.Token(), 5, 1)
	isText(t, err, rdma.ErrRights, "CanRead", "CanAtomic")
	if v := must(p.client.FetchAdd(ctx, s.Token(), 56, 1))(t); v != 0 {
		t.Errorf("FetchAdd returned %d", v)
	}
}

// TestErrorsNameLimits checks that errors of arguments name the number, the limit and the fix.
func TestErrorsNameLimits(t *testing.T) {
	p := connect(t, nil, &rdma.Options{MaxMessage: 20000})
	ctx := limit(t)
	_, s := p.share(t, 4<<20, rdma.CanWrite)
	err := p.client.WriteImm(ctx, make([]byte, 2<<20), s.Token(), 0, 7)
	isText(t, err, rdma.ErrTooLong, "2097152", "1048576", "WriteImmBuffer")
	isText(t, p.client.Write(ctx, make([]byte, 9), s.Token(), 4<<20), rdma.ErrBounds, "9 bytes at 4194304", "4194304")
	isText(t, p.client.Read(ctx, make([]byte, 9), s.Token(), 0), rdma.ErrRights, "CanWrite", "CanRead")
	isText(t, p.client.Send(ctx, make([]byte, 20001)), rdma.ErrTooLong, "20001", "20000", "MaxMessage")
	_, err = p.client.Alloc(1<<30 + 1)
	isText(t, err, rdma.ErrTooLong, "1073741825", "1073741824")
	_, err = p.client.Alloc(-1)
	isText(t, err, rdma.ErrBounds, "-1")
	b := must(p.client.Alloc(100))(t)
	defer b.Release()
	isText(t, b.SetLen(5000), rdma.ErrBounds, "5000", "Cap")
	var token rdma.Token
	isText(t, token.UnmarshalBinary(make([]byte, 23)), rdma.ErrProtocol, "23", "24")
	_, err = p.client.ShareRange(ctx, rdma.NewRegion(10), 4, 7, rdma.CanRead)
	isText(t, err, rdma.ErrBounds, "7 bytes at 4", "10")
	_, err = p.client.Share(ctx, rdma.NewRegion(10), 0x80)
	isText(t, err, uverbs.ErrInvalid, "0x80", "CanRead")
	roundTrip(t, p)
}
