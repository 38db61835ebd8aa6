package uverbs

import (
	"errors"
	"fmt"
	"math"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

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

	// Of a channel of commonChannels, and guarded by its lock.
	cqs   int // that use it
	place int // in all
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
	if common {
		openCommon.Add(1)
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
	if ch.common {
		openCommon.Add(-1)
	}
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

// Each CQ that is created without a channel has one to itself, up to a quarter of the descriptors that the process may
// open, so that its waiter reads its own event. Beyond, CQs share channels, and the waiter of another may have to wake
// the one that waits.
const (
	// ownChannels is how many channels each Context has for its CQs at least, and how many that no CQ uses it keeps.
	ownChannels = 64
	// channelShare is the share of the descriptors.
	channelShare = 4
)

// channelLimit returns the limit on openCommon.
var channelLimit = sync.OnceValue(func() int64 {
	var l unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &l) != nil {
		return 0 // it is not known, so CQs share channels
	}
	return int64(min(l.Cur/channelShare, math.MaxInt64))
})

// openCommon counts the channels that Contexts have created for their CQs, of the whole process.
var openCommon atomic.Int64

// commonChannels are the channels for the CQs that were created without one. No other lock is taken under its lock.
type commonChannels struct {
	mu       sync.Mutex
	all      []*CompChannel
	unused   []*CompChannel // those of all that no CQ uses
	creating int            // channels that are not in all yet
	next     int            // which of all is shared next
}

// takeChannel returns the channel for a CQ that was created without one, until giveChannel: one that no CQ uses, or
// else a new one, or else one that others use.
func (c *Context) takeChannel() (ch *CompChannel, isNew bool, err error) {
	p := &c.common
	if ch = p.take(); ch != nil {
		return ch, false, nil
	}
	ch, err = c.createChannel(true)
	if shared := p.created(ch, err); shared != nil {
		return shared, false, nil // no descriptor is left, or what is wrong makes the creation of the CQ fail
	}
	return ch, true, err
}

// take returns a channel that exists, or nil if the caller is to create one.
func (p *commonChannels) take() *CompChannel {
	p.mu.Lock()
	defer p.mu.Unlock()
	for n := len(p.unused); n > 0; n-- {
		ch := p.unused[n-1]
		p.unused = p.unused[:n-1]
		if !received(ch.broken) {
			ch.cqs = 1
			return ch
		}
	}
	if len(p.all)+p.creating >= ownChannels && openCommon.Load() >= channelLimit() {
		if ch := p.share(); ch != nil {
			return ch
		}
	}
	p.creating++
	return nil
}

// share returns one of the channels that CQs use, each in its turn, or nil.
func (p *commonChannels) share() *CompChannel {
	for range p.all {
		p.next = (p.next + 1) % len(p.all)
		if ch := p.all[p.next]; ch.cqs > 0 && !received(ch.broken) {
			ch.cqs++
			return ch
		}
	}
	return nil
}

// created adds a channel for a CQ. If it could not be created, created returns another one, or nil.
func (p *commonChannels) created(ch *CompChannel, err error) *CompChannel {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.creating--
	if err != nil {
		return p.share()
	}
	ch.cqs, ch.place = 1, len(p.all)
	p.all = append(p.all, ch)
	return nil
}

// giveChannel ends the use of a channel by a CQ. It closes the channel if no CQ uses it and it is not to be kept.
func (c *Context) giveChannel(ch *CompChannel, keep bool) error {
	if c.common.give(ch, keep) {
		return nil
	}
	return ch.closeOnce() // its caller calls the idle function, if need be
}

// give reports whether the channel stays open.
func (p *commonChannels) give(ch *CompChannel, keep bool) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if ch.cqs--; ch.cqs > 0 {
		return true
	}
	if keep && len(p.unused) < ownChannels {
		p.unused = append(p.unused, ch)
		return true
	}
	last := len(p.all) - 1
	p.all[ch.place], p.all[last].place = p.all[last], ch.place
	p.all[last] = nil
	p.all = p.all[:last]
	return false
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
