package onesided

import (
	"context"
	"errors"
	"fmt"

	"github.com/goverbs/goverbs/uverbs"
)

// access is what the device and the peer may do with a buffer.
const access = uverbs.LocalWrite | uverbs.RemoteRead | uverbs.RemoteWrite

// A Pool has a device and a fixed number of registered buffers. A nil Pool stands for a machine
// without a device. Its methods may be called from any number of goroutines.
type Pool struct {
	dev   *uverbs.Context
	pd    *uverbs.PD
	size  int
	count int
	free  chan *buffer
	dcis  chan *dci   // that no request uses
	lost  chan []byte // memory that a device may still write: it is never used again
}

// OpenPool opens a device, "" being the first one with an active port, and registers count
// buffers of size bytes. The memory is locked: see ulimit -l.
func OpenPool(device string, count, size int) (*Pool, error) {
	if count < 1 || size < 1 || size > uverbs.MaxMessage {
		return nil, fmt.Errorf("onesided: %d buffers of %d bytes: need at least one, of 1 to %d bytes", count, size,
			uverbs.MaxMessage)
	}
	dev, err := uverbs.Open(device)
	if err != nil {
		return nil, err
	}
	p := &Pool{dev: dev, size: size, count: count, free: make(chan *buffer, count)}
	p.lost, p.dcis = make(chan []byte, count), make(chan *dci, count)
	if p.pd, err = dev.AllocPD(); err != nil {
		return nil, errors.Join(err, dev.Close())
	}
	for range count {
		b := &buffer{pool: p, mem: make([]byte, size)}
		if err := b.register(); err != nil {
			return nil, errors.Join(err, dev.Close())
		}
		p.free <- b
	}
	return p, nil
}

// Close closes the device and all that was created on it.
func (p *Pool) Close() error {
	if p == nil {
		return nil
	}
	return p.dev.Close()
}

// get waits for a buffer. It returns an error if ctx ends, or if the device no longer registers
// memory.
func (p *Pool) get(ctx context.Context) (*buffer, error) {
	select {
	case b := <-p.free:
		if err := b.register(); err != nil {
			b.release()
			return nil, err
		}
		return b, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// A buffer is memory that one request uses.
type buffer struct {
	pool *Pool
	mem  []byte
	mr   *uverbs.MR // nil if the memory is not registered
}

func (b *buffer) register() (err error) {
	if b.mr == nil {
		b.mr, err = b.pool.pd.RegMR(b.mem, access)
	}
	return err
}

// release returns a buffer that no device uses.
func (b *buffer) release() { b.pool.free <- b }

// revoke returns a buffer that the server may be using. It closes the region, whose key the
// device then refuses, and the link through which the key was given away, since a later region
// may have the same key. If either fails, other memory replaces the buffer's.
func (b *buffer) revoke(closeLink func() error) {
	err := b.mr.Close()
	if err = errors.Join(err, closeLink()); err != nil {
		b.replace()
	}
	b.mr = nil
	b.release()
}

// replace gives the buffer new memory. What the device may still use stays reachable.
func (b *buffer) replace() {
	select {
	case b.pool.lost <- b.mem:
	default: // the MR keeps it reachable until its Context is closed
	}
	b.mem, b.mr = make([]byte, b.pool.size), nil
}
