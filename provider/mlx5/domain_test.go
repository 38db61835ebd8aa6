package mlx5

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/uverbs"
)

// registerOfQP returns the register that a QP rings.
func (d *desk) registerOfQP(t *testing.T, q *uverbs.QP) *uint64 {
	t.Helper()
	for _, s := range d.s.QPs {
		if s.Number == q.QPN() && d.s.ctx.indexed {
			return d.s.ctx.targets.find(s.UserIndex).sq.db.Reg
		} else if s.Number == q.QPN() {
			return d.s.ctx.targets.find(s.Number).sq.db.Reg
		}
	}
	t.Fatal("the device has no such QP")
	return nil
}

// TestThreadDomain checks that the QPs of a thread domain ring one register, which no other queue rings, and acquire no
// lock. The next domain uses a closed domain's register.
func TestThreadDomain(t *testing.T) {
	forKits(t, func(t *testing.T, k kit) {
		d := newDesk(t, k)
		if k.registers > 0 { // the kernel assigns its own registers to QPs
			if td, err := d.c.AllocTD(); !errors.Is(err, uverbs.ErrNotSupported) {
				t.Errorf("AllocTD: %v, %v", td, err)
			}
			return
		}
		base := d.pd
		td, other := good(d.c.AllocTD())(t), good(d.c.AllocTD())(t)
		own := good(base.AllocParentDomain(uverbs.ParentDomainConfig{TD: td}))(t)
		cq := good(d.c.CreateCQ(uverbs.CQConfig{Entries: 63, PD: own}))(t)
		d.pd = own
		first, second := d.loop(t, uverbs.QPConfig{SendCQ: cq}), d.loop(t, uverbs.QPConfig{SendCQ: cq})
		d.pd = good(base.AllocParentDomain(uverbs.ParentDomainConfig{TD: other}))(t)
		third := d.loop(t, uverbs.QPConfig{SendCQ: cq})
		d.pd = base
		plain := d.loop(t, uverbs.QPConfig{SendCQ: cq})
		r := d.registerOfQP(t, first)
		if r != d.registerOfQP(t, second) {
			t.Error("two QPs of a thread domain have two registers")
		}
		if !k.noBursts && (r == d.registerOfQP(t, third) || r == d.registerOfQP(t, plain)) {
			t.Error("a thread domain's register is another's too")
		}
		for i := range uint64(20) {
			for _, q := range []*uverbs.QP{first, second, third, plain} {
				d.write(t, q, i)
				poll(t, cq, i)
			}
		}
		for _, q := range []*uverbs.QP{first, second} {
			check(t, q.Close())
		}
		for name, close := range map[string]func() error{"TD": td.Close, "parent domain": own.Close, "PD": base.Close} {
			if err := close(); !errors.Is(err, uverbs.ErrBusy) { // cq uses the parent domain
				t.Errorf("close of a %s in use: %v", name, err)
			}
		}
	})
}

// TestThreadDomainRegisters checks that the next domain uses a closed domain's register, and that the device may run
// out of registers.
func TestThreadDomainRegisters(t *testing.T) {
	k := standard()
	s := newSoft(t, k)
	c := s.open(k)
	for range 10 {
		var all []*uverbs.TD
		for range 4 {
			all = append(all, good(c.AllocTD())(t))
		}
		for _, td := range all {
			check(t, td.Close())
		}
	}
	if n := s.Count("UAR.ALLOC"); n != 3 { // the context's own, and two pages with two registers each
		t.Errorf("%d register pages were made", n)
	}
	s.Set(func() { s.Refuse = map[string]unix.Errno{"UAR.ALLOC": unix.ENOSPC} })
	for range 4 {
		good(c.AllocTD())(t)
	}
	if _, err := c.AllocTD(); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("AllocTD: %v", err)
	}
	s.Set(func() { s.Refuse = nil })
}

// TestThreadDomainTakesNoLock checks that a post to a thread domain's register acquires no lock, like a post to a QP's
// own register.
func TestThreadDomainTakesNoLock(t *testing.T) {
	d := newDesk(t, standard())
	d.pd = good(d.pd.AllocParentDomain(uverbs.ParentDomainConfig{TD: good(d.c.AllocTD())(t)}))(t)
	q := d.loop(t, uverbs.QPConfig{SendCQ: good(d.c.CreateCQ(uverbs.CQConfig{Entries: 63, PD: d.pd}))(t)})
	for _, s := range d.s.QPs {
		r := d.s.ctx.targets.find(s.UserIndex).sq.shared
		r.mu.Lock() // a post must not wait for it
		defer r.mu.Unlock()
	}
	d.write(t, q, 1)
	poll(t, q.SendCQ(), 1)
}
