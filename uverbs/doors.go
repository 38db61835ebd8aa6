package uverbs

import (
	"github.com/goverbs/goverbs/internal/driver"
	"github.com/goverbs/goverbs/internal/ioctl"
	"github.com/goverbs/goverbs/internal/verbs"
)

// The functions of packages driver and verbs that other packages of this module call, for what programs
// do not need.
func init() {
	verbs.EndWaits = func(cq any, err error) { cq.(*CQ).endWaits(err) }
	verbs.Interrupt = func(cq any, on bool) { cq.(*CQ).interrupt(on) }
	verbs.WatchSRQ = func(srq any, limit func(), dropped func(wrID uint64)) { srq.(*SRQ).watch(limit, dropped) }
	verbs.SendsInFlight = func(qp any) int { return qp.(*QP).sendsInFlight() }
	verbs.Established = func(qp any, depth uint8) { qp.(*QP).established(depth) }
	verbs.CloseIdle = func(ctx any, but ...any) error { return ctx.(*Context).closeIdle(objectsOf(but)...) }
	verbs.AllocReused = func(pd any, n int, access uint32) (any, error) {
		return pd.(*PD).allocBy((*backing).allocReused, n, Access(access))
	}
	verbs.PortDown = func(ctx any, port int) bool {
		return ctx.(*Context).portsDown.Load()&portBit(uint64(port)) != 0
	}
	verbs.FreeReused = func(mr any) { mr.(*MR).reg.freeReused() }
	verbs.MaxInline = func(ctx any, n int) int {
		if p, ok := ctx.(*Context).impl.(driver.Inliner); ok {
			n = min(n, p.MaxInline())
		}
		return n
	}
	verbs.OnIdle = func(ctx any, f func() error, but ...any) { ctx.(*Context).onIdle(f, objectsOf(but)...) }
	driver.HandleOf = func(o any) uint32 { return o.(hasObject).asObject().handle }
	driver.MemoryOf = func(pd any) driver.Memory { return pd.(*PD).memory() }
	driver.WakeCQ = func(cq any) {
		if cq := cq.(*CQ); cq.channel != nil {
			cq.wake()
		}
	}
	driver.Purge = func(cq, queue any) {
		if cq := cq.(*CQ); !cq.ctx.ending.Load() {
			cq.purge(queue)
		}
	}
	driver.CreateRSS = func(pd any, cfg *driver.RSSConfig) (any, error) { return pd.(*PD).createRSS(cfg) }
	driver.QueryEthernet = func(ctx any) (driver.EthernetAttr, error) { return ctx.(*Context).queryEthernet() }
	driver.Extend = func(ctx any, op string, cfg driver.ExtensionConfig) (driver.Extension, error) {
		return ctx.(*Context).extend(op, cfg)
	}
	driver.WithContext = func(ctx any, op string, f func(*ioctl.Device, any) error) error {
		c := ctx.(*Context)
		return c.wrap(op, c.name, f(c.dev, c.impl), "")
	}
	driver.WithQP = func(qp any, op string, f func(driver.QPRef) error) error { return qp.(*QP).with(op, f) }
}

func (q *QP) with(op string, f func(driver.QPRef) error) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return &Error{Op: op, Object: q.String(), Kind: ErrClosed}
	}
	q.stateMu.Lock()
	defer q.stateMu.Unlock()
	return q.ctx.wrap(op, q.String(), f(driver.QPRef{Device: q.ctx.dev, Impl: q.ctx.impl, QP: q.impl, Handle: q.handle,
		Number: q.QPN(), Type: uint8(q.cfg.Type), State: uint8(q.state)}), "")
}

func objectsOf(all []any) (objects []hasObject) {
	for _, o := range all {
		objects = append(objects, o.(hasObject))
	}
	return objects
}
