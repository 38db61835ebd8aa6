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
	"github.com/goverbs/goverbs/internal/nldev"
	"github.com/goverbs/goverbs/internal/uapi"
	"golang.org/x/sys/unix"
)

// A CompChannel is a completion channel: it carries the events of completion queues in one file
// descriptor, however many CQs and waiters use it. A Context has one by default. Additional
// channels spread the wake-ups of many busy queues. Any number of goroutines may call its
// methods.
//
// One of the waiters reads the descriptor on behalf of all. So the only waiter of a queue is
// woken directly by the kernel's event, and nothing runs while no goroutine waits. When the
// reader's own wait ends, another waiter takes its place.
type CompChannel struct {
	object
	fd     int // passed to the command CQ_CREATE; valid while CQs use the channel
	file   *os.File
	broken chan struct{} // closed when no more events can arrive
	err    error         // the reason; set before broken is closed
	record record

	readToken chan struct{}      // contains a token while no goroutine reads: see read
	reader    atomic.Pointer[CQ] // the queue whose waiter is the reader
	watched   <-chan struct{}    // the Done channel of the ctx that interrupts the reader
	unwatch   func()             // stops watching it
}

// CreateCompChannel creates a completion channel: ibv_create_comp_channel(3). It returns
// [ErrClosed] after Close of the Context, EMFILE if the process has no file descriptor left,
// and ENOSPC if the user has no epoll watch left (fs.epoll.max_user_watches).
func (c *Context) CreateCompChannel() (*CompChannel, error) {
	ch := &CompChannel{broken: make(chan struct{}), readToken: make(chan struct{}, 1), unwatch: func() {}}
	ch.readToken <- struct{}{}
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
	if ch.file, err = pollable(ch.fd, "create completion channel", ch.ctx.name); err != nil {
		return err
	}
	if err := ch.record.init(ch.file); err != nil {
		return errors.Join(err, ch.file.Close())
	}
	return nil
}

// explainFDs returns the advice for EMFILE.
func explainFDs(err error) string {
	if errors.Is(err, unix.EMFILE) {
		return nldev.NoDescriptor
	}
	return ""
}

// pollable returns an os.File for a descriptor that the kernel returned. op and object are for
// errors. The descriptor must be non-blocking before the runtime sees it, or each read would
// occupy a thread.
func pollable(fd int, op, object string) (*os.File, error) {
	if err := unix.SetNonblock(fd, true); err != nil {
		return nil, errors.Join(os.NewSyscallError("fcntl", err), unix.Close(fd))
	}
	file := os.NewFile(uintptr(fd), op)
	// The runtime does not report that it cannot watch a descriptor, but setting a deadline of
	// such a file fails.
	if err := file.SetReadDeadline(time.Time{}); err != nil {
		return nil, errors.Join(explainUnpollable(fd, op, object), file.Close())
	}
	return file, nil
}

// explainUnpollable finds out why the runtime cannot watch a descriptor: it asks the kernel
// again with a separate epoll instance.
func explainUnpollable(fd int, op, object string) error {
	e := &Error{Op: op, Object: object, Detail: "the runtime cannot wait for its events by epoll"}
	poller, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		e.Errno = errnoOf(err)
		return e
	}
	err = unix.EpollCtl(poller, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN})
	e.Errno = errnoOf(err)
	if errors.Is(err, unix.ENOSPC) {
		e.Detail = "the user has no epoll watch left: the limit fs.epoll.max_user_watches is reached: raise it by sysctl(8), " +
			"or close descriptors that are being waited for"
	}
	// The epoll instance is empty and has no other user.
	_ = unix.Close(poller)
	return e
}

// compEventSize is the size of a record: struct ib_uverbs_comp_event_desc.
const compEventSize = 8

// read reads the channel for q's waiter, which holds the read token, until an event of q
// arrives or the wait ends. It wakes the waiters of other queues whose events arrive, and
// returns the token.
func (ch *CompChannel) read(ctx context.Context, q *CQ) error {
	ch.watch(ctx)
	ch.reader.Store(q)
	defer func() {
		ch.reader.Store(nil)
		ch.readToken <- struct{}{}
	}()
	for {
		// An interrupt from here on makes the read return at once.
		if done, err := q.waitOver(ctx); done {
			return err
		}
		id, err := ch.record.read()
		if errors.Is(err, os.ErrDeadlineExceeded) {
			err = ch.file.SetReadDeadline(time.Time{})
			if err == nil {
				continue
			}
		}
		if err != nil {
			return ch.fail(q, err)
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

// interrupt makes the reader check whether its wait has ended.
func (ch *CompChannel) interrupt() {
	// This fails only if the file is closed. Then the reader has ended.
	_ = ch.file.SetReadDeadline(time.Unix(1, 0))
}

// watch makes the end of ctx interrupt the reader. A reader with the same ctx as the previous
// one reuses its watch. The last watch is stopped when the channel is closed.
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

// fail ends the waits of all queues because reading the channel failed with err. It returns the
// error of q's wait. The caller holds the read token.
func (ch *CompChannel) fail(q *CQ, err error) error {
	select {
	case <-q.closing:
		return ErrClosed
	case <-ch.broken:
		return ch.err
	default:
	}
	switch {
	case errors.Is(err, os.ErrClosed):
		ch.err = ErrClosed
	case ch.ctx.isDeviceGone(err):
		ch.err = ErrDeviceGone
	default:
		ch.err = ch.ctx.wrap("wait for events of", ch.String(), err, "")
	}
	close(ch.broken)
	return ch.err
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
	<-ch.readToken // wait for the reader, if any
	ch.unwatch()
	if err != nil {
		return fmt.Errorf("uverbs: close completion channel: %w", err)
	}
	return nil
}

// Close closes the channel. It returns [ErrBusy] while CQs use it. It is
// idempotent.
func (ch *CompChannel) Close() error { return ch.close() }

// defaultChannel returns the channel that CQs share. The first call creates it.
func (c *Context) defaultChannel() (*CompChannel, error) {
	c.channelMu.Lock()
	defer c.channelMu.Unlock()
	if c.channel == nil {
		ch, err := c.CreateCompChannel()
		if err != nil {
			return nil, err
		}
		c.mu.Lock()
		c.channel = ch // inUse reads it with only mu held
		c.mu.Unlock()
	}
	return c.channel, nil
}
