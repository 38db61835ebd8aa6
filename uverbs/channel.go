package uverbs

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"

	"github.com/goverbs/goverbs/internal/ioctl"
	"github.com/goverbs/goverbs/internal/uapi"
	"golang.org/x/sys/unix"
)

// A CompChannel carries the events of completion queues: one descriptor, read
// by one goroutine, however many CQs and waiters use it. A Context has one by
// default; a further one spreads the wake-ups of many busy queues. Its methods
// may be called from any number of goroutines.
type CompChannel struct {
	object
	fd     int // for CQ.CREATE; valid while the channel has users
	file   *os.File
	pumped chan struct{} // closed when the reader has ended
	broken chan struct{} // closed before that when the device is gone
}

// CreateCompChannel makes a completion channel:
// ibv_create_comp_channel(3).
func (c *Context) CreateCompChannel() (*CompChannel, error) {
	ch := &CompChannel{pumped: make(chan struct{}), broken: make(chan struct{})}
	ch.object = object{ctx: c, kind: "completion channel", rank: rankChannel}
	ch.destroy, ch.retire = func() error { return nil }, ch.stop
	if err := ch.make(ch.create); err != nil {
		return nil, err
	}
	go ch.pump()
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
	ch.file, err = pollable(ch.fd, "completion channel")
	return err
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

// pump reads the channel until it is closed and wakes the queue that each
// record names.
func (ch *CompChannel) pump() {
	defer close(ch.pumped)
	var buf [compEventSize]byte
	for {
		n, err := ch.file.Read(buf[:])
		if err != nil {
			if !errors.Is(err, os.ErrClosed) {
				close(ch.broken) // the device is gone, and no event will come
			}
			return
		}
		id, ok := parseCompEvent(buf[:n])
		if !ok {
			close(ch.broken)
			return
		}
		if q, ok := ch.ctx.lookup(id).(*CQ); ok {
			q.wake()
		}
	}
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
	<-ch.pumped
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
		c.channel = ch
	}
	return c.channel, nil
}
