package uverbs

import (
	"github.com/goverbs/goverbs/internal/driver"
	"github.com/goverbs/goverbs/internal/ioctl"
)

// An extension implements driver.Extension.
type extension struct {
	object
	cfg driver.ExtensionConfig
}

func init() {
	driver.Extend = func(ctx any, op string, cfg driver.ExtensionConfig) (driver.Extension, error) {
		return ctx.(*Context).extend(op, cfg)
	}
	driver.WithContext = func(ctx any, op string, f func(*ioctl.Device, any) error) error {
		c := ctx.(*Context)
		return c.wrap(op, c.name, f(c.dev, c.impl), "")
	}
	driver.WithQP = func(qp any, op string, f func(driver.QPRef) error) error { return qp.(*QP).with(op, f) }
}

func (c *Context) extend(op string, cfg driver.ExtensionConfig) (driver.Extension, error) {
	e := &extension{cfg: cfg}
	e.object = object{ctx: c, life: e, kind: cfg.Kind, rank: rankExtension}
	if cfg.Memory {
		c.memory.AddUnknown() // first: the memory may be used as soon as the key exists
	}
	err := e.createWith(func() (err error) {
		if e.handle, err = cfg.Create(); err != nil {
			return c.wrap(op, c.name, err, "")
		}
		e.number = e.handle
		return nil
	})
	if err != nil {
		if cfg.Memory {
			c.memory.RemoveUnknown()
		}
		return nil, err
	}
	return e, nil
}

func (e *extension) destroy() error { return e.ctx.wrap("destroy", e.String(), e.cfg.Destroy(), "") }

func (e *extension) retire() error {
	if e.cfg.Memory {
		e.ctx.memory.RemoveUnknown()
	}
	if e.cfg.Retire == nil {
		return nil
	}
	return e.cfg.Retire()
}

// With implements driver.Extension.
func (e *extension) With(op string, f func() error) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return &Error{Op: op, Object: e.String(), Kind: ErrClosed}
	}
	return e.ctx.wrap(op, e.String(), f(), "")
}

// Close implements driver.Extension.
func (e *extension) Close() error { return e.close() }

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
