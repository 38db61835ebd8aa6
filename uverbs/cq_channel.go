package uverbs

import (
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"sync/atomic"
	"time"

	"github.com/goverbs/goverbs/internal/ioctl"
	"github.com/goverbs/goverbs/internal/uapi"
)

// A CompChannel is a completion channel: it carries the events of completion queues in one file
// descriptor, however many CQs and waiters use it. Any number of goroutines may call its methods.
//
// One of the waiters reads the descriptor on behalf of all. So the only waiter of a channel is
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
func (c *Context) CreateCompChannel() (*CompChannel, error) { return c.createChannel(false) }

func (c *Context) createChannel(common bool) (*CompChannel, error) {
	ch := &CompChannel{broken: make(chan struct{}), readToken: make(chan struct{}, 1), unwatch: func() {}}
	ch.readToken <- struct{}{}
	ch.object = object{ctx: c, life: ch, kind: "completion channel", rank: rankChannel, common: common}
	if err := ch.createWith(ch.create); err != nil {
		return nil, err
	}
	return ch, nil
}

func (ch *CompChannel) create() error {
	cmd := ioctl.Get()
	defer cmd.Put()
	resp := ioctl.Write[uapi.IbUverbsCreateCompChannelResp](cmd, uapi.IB_USER_VERBS_CMD_CREATE_COMP_CHANNEL,
		&uapi.IbUverbsCreateCompChannel{})
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

// interrupt makes the reader check whether its wait has ended.
func (ch *CompChannel) interrupt() {
	// This fails only if the file is closed. Then the reader has ended.
	_ = ch.file.SetReadDeadline(time.Unix(1, 0))
}

func (ch *CompChannel) retire() error {
	err := ch.file.Close()
	<-ch.readToken // wait for the reader, if any
	ch.unwatch()
	if err != nil {
		return fmt.Errorf("uverbs: close completion channel: %w", err)
	}
	return nil
}

// userCount returns the number of CQs that use the channel.
func (ch *CompChannel) userCount() int {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	return ch.users
}

// Close closes the channel. It returns [ErrBusy] while CQs use it. It is
// idempotent.
func (ch *CompChannel) Close() error { return ch.close() }

// maxCommon is how many channels the CQs of a Context have that were created without one. Up to this number, a waiter
// reads its own event. Beyond, another may have to wake it, but thousands of CQs need no descriptor each.
const maxCommon = 64

// commonChannel returns, and holds, the channel for a CQ that was created without one: one that no CQ uses, or else a
// new one, or else one that the fewest CQs use.
func (c *Context) commonChannel() (best *CompChannel, isNew bool, err error) {
	c.channelMu.Lock()
	defer c.channelMu.Unlock()
	least := math.MaxInt
	for _, ch := range c.channels {
		if n := ch.userCount(); n < least && !received(ch.broken) {
			best, least = ch, n
		}
	}
	if best == nil || least > 0 && len(c.channels) < maxCommon {
		ch, err := c.createChannel(true)
		switch {
		case err == nil:
			c.channels = append(c.channels, ch)
			best, isNew = ch, true
		case best == nil:
			return nil, false, err
		} // otherwise no descriptor is left, or what is wrong makes the creation of the CQ fail
	}
	return best, isNew, best.hold()
}

// dropChannel closes a channel, unless a CQ uses it.
func (c *Context) dropChannel(ch *CompChannel) error {
	c.channelMu.Lock()
	defer c.channelMu.Unlock()
	if ch.userCount() > 0 {
		return nil
	}
	c.channels = slices.DeleteFunc(c.channels, func(other *CompChannel) bool { return other == ch })
	return ch.Close()
}

// received receives from c if it can do so at once. A few calls cost less than one select with as many channels.
func received(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
