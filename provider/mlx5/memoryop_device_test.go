//go:build device

package mlx5

import (
	"errors"
	"sync"
	"testing"

	"github.com/goverbs/goverbs/internal/sim/features"
	_ "github.com/goverbs/goverbs/provider/rxe" // whose devices have no such memory
	_ "github.com/goverbs/goverbs/provider/siw" // the same
	"github.com/goverbs/goverbs/uverbs"
)

// TestDeviceDMOps has the tests of rdma-core's tests/test_mlx5_dm_ops.py.
func TestDeviceDMOps(t *testing.T) {
	t.Run("test_dm_atomic_ops", func(t *testing.T) {
		_, increment, testAndSet := openDMOps(t)
		increment.add(t)
		increment.add(t)
		if a, b := testAndSet.load(t), testAndSet.load(t); a != 2 || b != 1 {
			t.Errorf("two increments: %d, then %d", a, b)
		}
	})
	t.Run("test_parallel_dm_atomic_ops", func(t *testing.T) {
		dm, increment, testAndSet := openDMOps(t)
		const goroutines = 10
		var all sync.WaitGroup
		for range goroutines {
			all.Go(func() { testAndSet.load(t) })
		}
		all.Wait()
		for range goroutines {
			all.Go(func() { increment.add(t) })
		}
		all.Wait()
		if n := testAndSet.load(t); n != goroutines+1 {
			t.Errorf("the memory has %d, want %d", n, goroutines+1)
		}
		word := make([]byte, 4)
		if _, err := dm.ReadAt(word, 0); err != nil || [4]byte(word) != [4]byte{1} {
			t.Errorf("at the end: %v, %v", word, err)
		}
	})
}

// A byteOp accesses the first byte of device memory at the address of an operation.
type byteOp struct{ *DMOpAddr }

func (o byteOp) add(t testing.TB) {
	if err := o.Store([]byte{1}, 0); err != nil {
		t.Error(err)
	}
}

func (o byteOp) load(t testing.TB) byte {
	b := make([]byte, 1)
	if err := o.Load(b, 0); err != nil {
		t.Error(err)
	}
	return b[0]
}

// openDMOps returns zeroed device memory with two operations. If the kernel or the device lacks them, it skips the
// test.
func openDMOps(t *testing.T) (dm *uverbs.DM, increment, testAndSet byteOp) {
	t.Helper()
	c, err := uverbs.Open(deviceName(t))
	check(t, err)
	t.Cleanup(func() { check(t, c.Close()) })
	a, err := c.QueryDevice()
	check(t, err)
	dm, err = c.AllocDM(uverbs.DMConfig{Size: max(int(a.MaxDMSize/2), 64)})
	if errors.Is(err, uverbs.ErrNotSupported) {
		features.Missing(t, features.DeviceMemory, err)
	}
	check(t, err)
	if _, err := dm.WriteAt(make([]byte, dm.Size()), 0); err != nil {
		t.Fatal(err)
	}
	var addrs [2]byteOp
	for i, op := range []DMOp{DMIncrement, DMTestAndSet} {
		addr, err := MapDMOp(dm, op)
		if errors.Is(err, uverbs.ErrNotSupported) {
			features.Missing(t, features.MemoryOps, err)
		}
		check(t, err)
		addrs[i] = byteOp{addr}
	}
	return dm, addrs[0], addrs[1]
}
