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

// extensionRanks are the ranks of extensions by driver.Rank.
var extensionRanks = [...]rank{driver.BeforeAll: rankExtension, driver.AfterQPs: rankAfterQPs,
	driver.AfterTables: rankAfterTables}

func (c *Context) extend(op string, cfg driver.ExtensionConfig) (driver.Extension, error) {
	e := &extension{cfg: cfg}
	e.object = object{ctx: c, life: e, kind: cfg.Kind, rank: extensionRanks[cfg.Rank]}
	for _, p := range cfg.Parents {
		e.addParents(p.(hasObject).asObject())
	}
	if cfg.DeviceGone != nil {
		e.id = c.id(e)
	}
	if cfg.Memory {
		c.memory.AddUnknown() // first: the memory may be used as soon as the key exists
	}
	err := e.createWith(func() error {
		handle, err := cfg.Create(e)
		if err != nil {
			e.destroyIfExists(e.destroy)
			return c.wrap(op, c.name, err, "")
		}
		if !e.exists {
			e.handle, e.number = handle, handle
		}
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

// Created implements driver.Extension.
func (e *extension) Created(handle, number uint32) {
	e.handle, e.number, e.exists = handle, number, true
}

// NameEvents implements driver.Extension.
func (e *extension) NameEvents(cmd *ioctl.Cmd, userHandle, eventFD uint16) {
	cmd.Uint64(userHandle, e.id)
	e.ctx.nameEvents(cmd, eventFD)
}

// DestroyCommand implements driver.Extension.
func (e *extension) DestroyCommand(cmd *ioctl.Cmd) error { return e.destroyCommand(cmd) }

// Explain implements driver.Extension.
func (e *extension) Explain(op string, err error) error { return e.ctx.wrap(op, e.String(), err, "") }

// DeviceGone implements driver.Extension.
func (e *extension) DeviceGone() bool { return e.ctx.deviceGone.Load() }

func (e *extension) deviceGone() { e.cfg.DeviceGone() }

// Close implements driver.Extension.
func (e *extension) Close() error { return e.close() }
