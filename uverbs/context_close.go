package uverbs

import (
	"errors"
	"slices"
)

// Close destroys every object that was created on c, closes the device and releases the memory.
// Posts, polls and waits in other goroutines return [ErrClosed]. Close is idempotent, and waits
// for a Close in progress.
//
// It ends the waits, destroys the objects and releases their rings, closes the descriptor, and
// then unpins the memory. If the kernel refuses to destroy an object, Close returns its error.
// Closing the descriptor destroys the object all the same, unless c was imported or
// [Context.ExportFD] was called: then the object lives on with the descriptors of the others, and
// its memory stays pinned until the process ends.
func (c *Context) Close() error {
	c.closeOnce.Do(func() { c.closeErr = c.closeAll() })
	return c.closeErr
}

func (c *Context) closeAll() error {
	c.idle.Store(nil)
	c.ending.Store(true)
	c.creating.stop()

	var errs []error
	for r := range ranks {
		for _, o := range c.ranked(r) {
			errs = append(errs, o.close())
		}
	}
	errs = append(errs, c.events.close(), c.impl.Retire(), c.dev.Close())
	errs = append(errs, c.finalizeAll()...)

	contexts.Lock()
	delete(contexts.open, c)
	contexts.Unlock()
	c.ticket.Done()
	return errors.Join(errs...)
}

func (c *Context) ranked(r rank) []*object {
	c.mu.Lock()
	defer c.mu.Unlock()
	var all []*object
	for o := range c.objects.all {
		if o.rank == r {
			all = append(all, o)
		}
	}
	if r == rankExtension {
		return all // the newest first: they refer to each other by numbers that uverbs does not know
	}
	slices.SortFunc(all, func(a, b *object) int { return int(a.handle) - int(b.handle) })
	return all
}

// finalizeAll finalizes the objects that the kernel refused to destroy. The kernel has
// destroyed them since, when the descriptor was closed, unless the kernel's context has, or may
// have, another descriptor. Then the device may still access their memory, which is kept.
func (c *Context) finalizeAll() (errs []error) {
	shared := c.imported || c.exported.Load()
	for r := range ranks {
		for _, o := range c.ranked(r) {
			o.mu.Lock()
			if !o.closed { // its own Close may have run first
				if shared {
					o.keep()
				}
				errs = append(errs, o.finalize())
			}
			o.mu.Unlock()
		}
	}
	return errs
}

// keep keeps the memory of o for as long as the process runs. The caller holds o.mu.
func (o *object) keep() {
	o.kept = true
	contexts.Lock()
	defer contexts.Unlock()
	contexts.kept = append(contexts.kept, o)
}
