package uverbs

import (
	"errors"
	"slices"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// TestTrimRefused checks that if the kernel refuses to unmap a part, as at vm.max_map_count, trim
// unmaps no range twice: another thread may have mapped it meanwhile.
func TestTrimRefused(t *testing.T) {
	const page = 4096
	type span struct{ at, n uintptr }
	base := new([8 * page]byte)
	for _, tc := range []struct {
		refused int
		want    []span
	}{
		{1, []span{{0, 2 * page}, {0, 8 * page}}},
		{2, []span{{0, 2 * page}, {5 * page, 3 * page}, {2 * page, 6 * page}}},
	} {
		var calls []span
		munmap = func(p unsafe.Pointer, n uintptr) error {
			calls = append(calls, span{uintptr(p) - uintptr(unsafe.Pointer(base)), n})
			if len(calls) == tc.refused {
				return unix.ENOMEM
			}
			return nil
		}
		_, err := trim(unsafe.Pointer(base), 8*page, 2*page, 3*page)
		munmap = unix.MunmapPtr
		if !errors.Is(err, unix.ENOMEM) || !slices.Equal(calls, tc.want) {
			t.Errorf("call %d refused: %v, calls %v, want %v", tc.refused, err, calls, tc.want)
		}
	}
}
