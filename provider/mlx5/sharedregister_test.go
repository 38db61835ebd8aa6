package mlx5

import (
	"encoding/binary"
	"sync"
	"testing"

	"github.com/goverbs/goverbs/internal/driver"
	"github.com/goverbs/goverbs/internal/provider"
	"github.com/goverbs/goverbs/uverbs"
)

// registerStores checks the stores to a register, in the order in which the device sees them.
type registerStores struct {
	t    *testing.T
	half uint32
	n    map[uint32]uint32 // of each QP, the number of its next request
}

func (s *registerStores) Doorbell(_, offset uint32, b []byte) {
	if at := offset - uarSend; at != s.half {
		s.t.Errorf("a store at %#x, want it in the half at %#x", at, s.half)
	}
	s.half ^= 256
	ctrl, qpn := binary.BigEndian.Uint32(b), binary.BigEndian.Uint32(b[4:])>>8
	if next := ctrl >> 8 & 0xffff; next != s.n[qpn]&0xffff {
		s.t.Errorf("QP %#x: request %d, want %d", qpn, next, s.n[qpn])
	}
	s.n[qpn]++
}

// TestSharedRegister lets goroutines post at the same time, each to its own QP, which share a register. Each store must
// be of one request, in the half that the device expects next, whatever lock the register has.
func TestSharedRegister(t *testing.T) {
	const qps, posts = 8, 2000
	mem := good(provider.Anon(uarSize))(t)
	stores := &registerStores{t: t, n: make(map[uint32]uint32)}
	q := newBench(t, uverbs.QPConfig{MaxSendWR: 64, MaxSendSGE: 1}, nil)
	c := q.ctx
	c.set.preferBF = true
	r := &register{reg: registerOf(mem.Bytes()[uarSend:]), mem: mem, at: uarSend, bell: stores, toggle: 256, most: 4,
		shared: true}
	c.uars.free, c.uars.shared, c.uars.plain = nil, []*register{r}, &register{users: 1 << 30}
	c.uars.set.exclusive, c.uars.set.registers = 0, 0
	var all []*bench
	for i := range qps {
		u, _, err := c.CreateQP(&uverbs.QPConfig{Type: uverbs.RC, MaxSendWR: 64, MaxSendSGE: 1}, provider.QPEnv{},
			func([]byte, []byte) (driver.Reply, error) { return driver.Reply{Number: uint32(0x100 + i)}, nil })
		check(t, err)
		all = append(all, &bench{queues: queues{u.(*qp)}, QP: u})
	}
	// A QP with a separate register does not wait for the lock of a shared one.
	r.mu.Lock()
	one := []uverbs.SendWR{{WRID: 1, Opcode: uverbs.OpWrite, SGL: []uverbs.SGE{{Addr: 1, Length: 32, LKey: 7}}}}
	good(q.PostSend(one))(t)
	r.mu.Unlock()
	var wg sync.WaitGroup
	for _, q := range all {
		wg.Go(func() {
			for range posts {
				if _, err := q.PostSend(one); err != nil {
					t.Error(err)
					return
				}
				q.complete()
			}
		})
	}
	wg.Wait()
	for i := range qps {
		if n := stores.n[uint32(0x100+i)]; n != posts {
			t.Errorf("the device has seen %d requests of QP %d, want %d", n, i, posts)
		}
	}
	for _, q := range all {
		check(t, q.Retire(true))
	}
	check(t, mem.Retire())
}
