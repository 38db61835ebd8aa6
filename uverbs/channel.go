package uverbs

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"github.com/goverbs/goverbs/internal/ioctl"
	"github.com/goverbs/goverbs/internal/uapi"
	"golang.org/x/sys/unix"
)

// A CompChannel carries the events of completion queues: one descriptor,
// however many CQs and waiters use it. A Context has one by default; a further
// one spreads the wake-ups of many busy queues. Its methods may be called from
// any number of goroutines.
//
// One of the waiters reads the descriptor, for all: so the only waiter of a
// queue is woken by the kernel's event itself, and nothing runs while nobody
// waits. When the reader's own wait ends, another waiter takes its place.
type CompChannel struct {
	object
	fd     int // for CQ.CREATE; valid while the channel has users
	file   *os.File
	broken chan struct{} // closed when the device is gone
	record record

	lead    chan struct{}      // holds a token while nobody reads
	reader  atomic.Pointer[CQ] // whom the reader waits for
	watched <-chan struct{}    // of the context whose end interrupts the reader
	unwatch func()             // ends that
}

// CreateCompChannel makes a completion channel:
// ibv_create_comp_channel(3). [ErrClosed] after Close of the Context. EMFILE
// when the process has no descriptor left.
func (c *Context) CreateCompChannel() (*CompChannel, error) {
	ch := &CompChannel{broken: make(chan struct{}), lead: make(chan struct{}, 1), unwatch: func() {}}
	ch.lead <- struct{}{}
	ch.object = object{ctx: c, kind: "completion channel", rank: rankChannel}
	ch.destroy, ch.retire = func() error { return nil }, ch.stop
	if err := ch.make(ch.create); err != nil {
		return nil, err
	}
	return ch, nil
}

func (ch *CompChannel) create() error {
	cmd := ioctl.Get()
	defer cmd.Put()
	resp := ioctl.Write[uapi.IbUverbsCreateCompChannelResp](cmd, uapi.IB_USER_VERBS_CMD_CREATE_COMP_CHANNEL, &uapi.IbUverbsCreateCompChannel{})
	if err := ch.ctx.dev.Do(cmd); err != nil {
		return ch.ctx.wrap("create completion channel", ch.ctx.name, err, explainFDs(err))
	}
	var err error
	ch.fd, ch.number = int(resp.Fd), resp.Fd
	if ch.file, err = pollable(ch.fd, "completion channel"); err != nil {
		return err
	}
	if err := ch.record.of(ch.file); err != nil {
		return errors.Join(err, ch.file.Close())
	}
	return nil
}

// explainFDs says what to do when no descriptor is left.
func explainFDs(err error) string {
	if errors.Is(err, unix.EMFILE) {
		return "the process has no descriptor left: raise RLIMIT_NOFILE (`ulimit -n`)"
	}
	return ""
}

// pollable makes a file of a descriptor that the kernel handed out. It must be
// non-blocking before the runtime sees it, or reads of it would each hold a
// thread.
func pollable(fd int, name string) (*os.File, error) {
	if err := unix.SetNonblock(fd, true); err != nil {
		return nil, errors.Join(os.NewSyscallError("fcntl", err), unix.Close(fd))
	}
	return os.NewFile(uintptr(fd), name), nil
}

// compEventSize is the size of a record: struct ib_uverbs_comp_event_desc.
const compEventSize = 8

// read reads the channel for q's waiter, who has taken the lead, until an event
// of q comes or the wait ends. It wakes the other queues whose events come, and
// hands the lead on.
func (ch *CompChannel) read(ctx context.Context, q *CQ) error {
	ch.watch(ctx)
	ch.reader.Store(q)
	defer func() {
		ch.reader.Store(nil)
		ch.lead <- struct{}{}
	}()
	for {
		// What interrupts the read from here on makes it return at once.
		if done, err := q.waitOver(ctx); done {
			return err
		}
		id, ok, err := ch.record.read()
		if errors.Is(err, os.ErrDeadlineExceeded) {
			if err := ch.file.SetReadDeadline(time.Time{}); err != nil {
				return ch.end(q)
			}
			continue
		}
		if err != nil || !ok {
			return ch.end(q)
		}
		if id == q.id {
			q.event()
			return nil
		}
		if other, ok := ch.ctx.lookup(id).(*CQ); ok {
			other.event()
			other.wake()
		}
	}
}

// interrupt makes the reader look whether its wait is over.
func (ch *CompChannel) interrupt() {
	// It fails on a closed file alone, whose reader has ended.
	_ = ch.file.SetReadDeadline(time.Unix(1, 0))
}

// watch lets the end of ctx interrupt the reader. A reader that comes back with
// the same context finds it watched already; the last one is let go of with the
// channel.
func (ch *CompChannel) watch(ctx context.Context) {
	if ch.watched == ctx.Done() {
		return
	}
	ch.unwatch()
	ch.watched, ch.unwatch = ctx.Done(), func() {}
	if ch.watched != nil {
		stop := context.AfterFunc(ctx, ch.interrupt)
		ch.unwatch = func() { stop() }
	}
}

// end tells the waiters that no event will come any more.
func (ch *CompChannel) end(q *CQ) error {
	select {
	case <-q.closing:
		return ErrClosed
	case <-ch.broken:
	default:
		close(ch.broken)
		if !ch.ctx.ending.Load() {
			ch.ctx.lose()
		}
	}
	return ErrDeviceGone
}

// parseCompEvent decodes a record of a completion channel.
func parseCompEvent(b []byte) (id uint64, ok bool) {
	if len(b) != compEventSize {
		return 0, false
	}
	return binary.LittleEndian.Uint64(b), true
}

func (ch *CompChannel) stop() error {
	err := ch.file.Close()
	<-ch.lead // the reader, if there is one, has ended
	ch.unwatch()
	if err != nil {
		return fmt.Errorf("uverbs: close completion channel: %w", err)
	}
	return nil
}

// Close closes the channel. It answers [ErrBusy] while CQs use it. It is
// idempotent.
func (ch *CompChannel) Close() error { return ch.close() }

// defaultChannel returns the channel that CQs share, made at first use.
func (c *Context) defaultChannel() (*CompChannel, error) {
	c.channelMu.Lock()
	defer c.channelMu.Unlock()
	if c.channel == nil {
		ch, err := c.CreateCompChannel()
		if err != nil {
			return nil, err
		}
		c.mu.Lock()
		c.channel = ch // inUse looks at it under mu alone
		c.mu.Unlock()
	}
	return c.channel, nil
}
