package devicetest

import (
	"errors"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/goverbs/goverbs/internal/sim/features"
	"github.com/goverbs/goverbs/uverbs"
	"golang.org/x/sys/unix"
)

// TestDeviceParityParentDomain has the tests of tests/test_parent_domain.py.
func TestDeviceParityParentDomain(t *testing.T) {
	const rc, ud = uverbs.RC, uverbs.UD
	for name, run := range map[string]func(*testing.T){
		"test_without_allocators_rc_traffic": func(t *testing.T) {
			client, _ := newPlayers(t, setup{rounds: 10, parent: &uverbs.ParentDomainConfig{}})
			traffic(t, client, uverbs.OpSend)
		},
		"test_default_allocators_rc_traffic": func(t *testing.T) {
			asked := 0
			leave := &uverbs.ParentDomainConfig{
				Alloc: func(int, int) ([]byte, error) { asked++; return nil, nil },
				Free:  func(b []byte) { t.Errorf("%d bytes come back that nobody gave", len(b)) },
			}
			client, _ := newPlayers(t, setup{rounds: 10, parent: leave})
			traffic(t, client, uverbs.OpSend)
			wasAsked(t, client, asked, 4)
		},
		"test_mem_align_rc_traffic":          aligned(setup{kind: rc}, 4),
		"test_mem_align_ud_traffic":          aligned(setup{kind: ud}, 4),
		"test_mem_align_srq_excq_rc_traffic": aligned(setup{kind: rc, srq: true, entries: 2000}, 6),
	} {
		t.Run(name, run)
	}
}

// wasAsked checks how often Alloc was called for rings. The rings of rxe are
// allocated by the kernel, so that it is never called.
func wasAsked(t testing.TB, p *player, asked, rings int) {
	t.Helper()
	if strings.HasPrefix(p.dev.Name(), "rxe") {
		rings = 0
	}
	if asked != rings {
		t.Errorf("Alloc was called %d times, want %d", asked, rings)
	}
}

// aligned sends messages through queues whose rings the test allocates. It checks
// that no ring is freed while the queues are open.
func aligned(s setup, rings int) func(*testing.T) {
	return func(t *testing.T) {
		asked := 0
		var back atomic.Int32
		s.rounds = 10
		s.parent = &uverbs.ParentDomainConfig{
			Alloc: func(n, align int) ([]byte, error) {
				asked++
				if align > unix.Getpagesize() {
					return nil, errors.New("mmap does not align so much")
				}
				return unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
			},
			Free: func(b []byte) {
				back.Add(1)
				_ = unix.Munmap(b) // the test may have ended
			},
		}
		client, _ := newPlayers(t, s)
		traffic(t, client, uverbs.OpSend)
		wasAsked(t, client, asked, rings)
		if n := back.Load(); n != 0 {
			t.Errorf("%d rings came back while they were in use", n)
		}
	}
}

// TestDeviceParityHugePage has the tests of tests/test_mlx5_huge_page.py: environment
// variables request rings in huge pages. libmlx5 reads them when a queue is created,
// goverbs when the device is opened.
func TestDeviceParityHugePage(t *testing.T) {
	queues := func(t *testing.T, kind string) []error {
		for _, name := range []string{"MLX_CQ_ALLOC_TYPE", "MLX_QP_ALLOC_TYPE", "MLX_SRQ_ALLOC_TYPE"} {
			t.Setenv(name, kind)
		}
		dev := openDevice(t)
		if kernelRings(dev) {
			features.Missing(t, features.RingPages, errors.New("the rings are the kernel's memory"))
		}
		t.Setenv("MLX_CQ_ALLOC_TYPE", "")
		other := openDevice(t) // for the QP, which needs a CQ
		cq := must(other.CreateCQ(uverbs.CQConfig{Entries: 100}))(t)
		pd := must(other.AllocPD())(t)
		return []error{
			second(dev.CreateCQ(uverbs.CQConfig{Entries: 100})),
			second(pd.CreateQP(uverbs.QPConfig{Type: uverbs.RC, SendCQ: cq, MaxSendWR: 100, MaxRecvWR: 100})),
			second(pd.CreateSRQ(uverbs.SRQConfig{MaxWR: 100})),
		}
	}
	t.Run("test_prefer_obj_on_huge", func(t *testing.T) {
		check(t, errors.Join(queues(t, "PREFER_HUGE")...))
	})
	t.Run("test_obj_on_huge", func(t *testing.T) {
		free := hugePages(t)
		for i, err := range queues(t, "HUGE") { // each queue needs one huge page
			if i < free {
				check(t, err)
			} else if !errors.Is(err, unix.ENOMEM) {
				t.Errorf("queue %d, with %d huge pages: %v", i, free, err)
			}
		}
	})
}

// hugePages returns the number of free huge pages of 2 MiB.
func hugePages(t testing.TB) int {
	t.Helper()
	b, err := os.ReadFile("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages")
	if errors.Is(err, os.ErrNotExist) {
		return 0
	}
	check(t, err)
	return must(strconv.Atoi(strings.TrimSpace(string(b))))(t)
}
