package mlx5

import (
	"math/bits"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/provider"
)

// A record is a doorbell record: two words of memory that the device reads. A QP's record holds
// the receive and the send counter, a CQ's the consumer index and the word that arms it.
type record struct {
	words *[2]uint32
	addr  uint64
	page  *recordPage
	slot  int
}

const (
	recvCounter = 0
	sendCounter = 1
	consumed    = 0
	armed       = 1
)

// A recordPage is a page of records, each in its own cache line. The kernel pins the page while a
// queue uses it.
type recordPage struct {
	mem  *provider.Mapping
	used []uint64 // bit map
	n    int
}

// records allocates doorbell records.
type records struct {
	mu    sync.Mutex
	line  int // bytes between records
	pages []*recordPage
}

func (r *records) get() (record, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range r.pages {
		if i := p.vacant(); i >= 0 {
			return r.take(p, i), nil
		}
	}
	mem, err := provider.Anon(unix.Getpagesize())
	if err != nil {
		return record{}, err
	}
	slots := len(mem.Bytes()) / r.line
	p := &recordPage{mem: mem, used: make([]uint64, (slots+63)/64)}
	if rest := slots % 64; rest != 0 {
		p.used[len(p.used)-1] = ^uint64(0) << rest // these slots do not exist
	}
	r.pages = append(r.pages, p)
	return r.take(p, 0), nil
}

func (p *recordPage) vacant() int {
	for i, w := range p.used {
		if w != ^uint64(0) {
			return 64*i + bits.TrailingZeros64(^w)
		}
	}
	return -1
}

func (r *records) take(p *recordPage, i int) record {
	p.used[i/64] |= 1 << (i % 64)
	p.n++
	b := p.mem.Bytes()[i*r.line:]
	clear(b[:8])
	return record{words: wordsOf(b), addr: addressOf(b), page: p, slot: i}
}

// put frees a record. The kernel must have destroyed the queue before. A page without records is
// unmapped, unless it is the only one.
func (r *records) put(c record) error {
	if c.page == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	c.page.used[c.slot/64] &^= 1 << (c.slot % 64)
	c.page.n--
	if c.page.n > 0 || len(r.pages) == 1 {
		return nil
	}
	for i, p := range r.pages {
		if p == c.page {
			r.pages = append(r.pages[:i], r.pages[i+1:]...)
			break
		}
	}
	return c.page.mem.Retire()
}

// retire unmaps all pages.
func (r *records) retire() (err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range r.pages {
		if e := p.mem.Retire(); err == nil {
			err = e
		}
	}
	r.pages = nil
	return err
}
