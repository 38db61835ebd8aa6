package uverbs

import (
	"errors"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/goverbs/goverbs/internal/ioctl"
	"github.com/goverbs/goverbs/internal/leak"
	"github.com/goverbs/goverbs/internal/uapi"
	"golang.org/x/sys/unix"
)

// An object is what PD, MR, CQ, QP, SRQ, AH and completion channel have in common: a
// kernel handle, parents that must outlive it, and children that it must
// outlive.
//
// Lock order: a child's mu before its parents'.
type object struct {
	ctx    *Context
	kind   string // "PD", "MR", ...
	rank   rank
	handle uint32
	number uint32 // shown in errors: the QPN of a QP, the handle of others
	exists bool   // the kernel has it, though nobody else may know of it yet
	ticket *leak.Ticket

	parents    []*object
	room       [2]*object // for most parents
	prev, next *object    // in the context's objects, under its mu

	mu     sync.Mutex
	closed bool
	users  int // children alive
	// destroy makes the kernel let the object go. On an error it stays open.
	destroy func() error
	// retire gives back rings and memory, after the kernel has let go of
	// them. Nil where there are none.
	retire func() error
}

// A rank is an object's place in the order in which Context.Close destroys.
type rank uint8

const (
	rankMW rank = iota
	rankFlow
	rankQP
	rankRWQIndTable
	rankWQ
	rankAH
	rankSRQ
	rankCQ
	rankMR
	rankXRCD
	rankParent
	rankTD
	rankPD
	rankChannel
	ranks
)

// An objectList holds the objects of a context, whose mu guards it.
type objectList struct{ first *object }

func (l *objectList) add(o *object) {
	if o.next = l.first; o.next != nil {
		o.next.prev = o
	}
	l.first = o
}

func (l *objectList) remove(o *object) {
	if o.prev == nil {
		l.first = o.next
	} else {
		o.prev.next = o.next
	}
	if o.next != nil {
		o.next.prev = o.prev
	}
	o.prev, o.next = nil, nil
}

// all is for range. Nothing may be removed meanwhile.
func (l *objectList) all(yield func(*object) bool) {
	for o := l.first; o != nil && yield(o); o = o.next {
	}
}

// under makes o a child. It spares most objects a slice of their own.
func (o *object) under(parents ...*object) {
	if o.parents == nil {
		o.parents = o.room[:0]
	}
	o.parents = append(o.parents, parents...)
}

func (o *object) String() string {
	return o.ctx.name + " " + o.kind + " " + strconv.FormatUint(uint64(o.number), 10)
}

// hold enters a child.
func (o *object) hold() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		return ErrClosed
	}
	o.users++
	return nil
}

func (o *object) drop() {
	o.mu.Lock()
	o.users--
	o.mu.Unlock()
}

// holdAll enters o as a child at each of its parents, or at none.
func (o *object) holdAll() error {
	for i, p := range o.parents {
		if err := p.hold(); err != nil {
			dropAll(o.parents[:i])
			return &Error{Op: "make " + o.kind, Object: p.String(), Kind: err, Detail: "the " + p.kind + " has been closed"}
		}
	}
	return nil
}

func dropAll(parents []*object) {
	for _, p := range parents {
		p.drop()
	}
}

// make runs create, which issues the create command and sets o.handle, with
// the parents held, and makes o known to its context.
func (o *object) make(create func() error) error {
	c := o.ctx
	c.creating.RLock() // Close waits for creates that have begun
	defer c.creating.RUnlock()
	if c.closing {
		return &Error{Op: "make " + o.kind, Object: c.name, Kind: ErrClosed, Detail: "the Context has been closed"}
	}
	if err := o.holdAll(); err != nil {
		return err
	}
	if err := create(); err != nil {
		dropAll(o.parents)
		return err
	}
	c.mu.Lock()
	c.objects.add(o)
	c.mu.Unlock()
	o.ticket = leak.Track(c.name, o.kind)
	return nil
}

// close destroys o, once; a further call returns nil.
func (o *object) close() error { return o.ctx.idled(o.closeOnce()) }

func (o *object) closeOnce() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		return nil
	}
	if o.users > 0 {
		return &Error{Op: "close", Object: o.String(), Kind: ErrBusy, Errno: unix.EBUSY, Detail: o.usedBy()}
	}
	if err := o.destroy(); err != nil {
		return err
	}
	return o.bury()
}

// usedBy says what keeps o from being closed. The caller holds o.mu.
func (o *object) usedBy() string {
	const most = 4
	var names []string
	o.ctx.mu.Lock()
	for child := range o.ctx.objects.all {
		if slices.Contains(child.parents, o) {
			names = append(names, child.kind+" "+strconv.FormatUint(uint64(child.number), 10))
		}
	}
	o.ctx.mu.Unlock()
	if len(names) == 0 {
		return "an object is being made on it"
	}
	slices.Sort(names)
	if more := len(names) - most; more > 0 {
		names = append(names[:most], strconv.Itoa(more)+" more")
	}
	return "still in use by " + strings.Join(names, ", ") + ": close what is made on it first"
}

// bury takes the leave of an object that the kernel has let go of. Until it has
// ended the context knows the object, so that its Close waits for the end.
func (o *object) bury() error {
	o.closed = true
	o.ticket.Done()
	dropAll(o.parents)
	var err error
	if o.retire != nil {
		err = o.retire()
	}
	o.ctx.mu.Lock()
	o.ctx.objects.remove(o)
	o.ctx.mu.Unlock()
	return err
}

// made notes the handle of a create command that succeeded, for unmake.
func (o *object) made(r ProviderReply, err error) (ProviderReply, error) {
	if err == nil {
		o.handle, o.number, o.exists = r.Handle, r.Handle, true
	}
	return r, err
}

// unmake destroys what a create command has made, when what had to follow it
// failed.
func (o *object) unmake(destroy func() error) {
	if o.exists {
		o.exists = false
		// The caller tells what went wrong first. Should this fail too, the
		// object stays in the kernel until the context is closed.
		_ = destroy()
	}
}

// destroyHandle issues a destroy method that takes a handle.
func (o *object) destroyHandle(objectID, method, attr uint16, replyAttr int, replyLen int) error {
	c := ioctl.Get()
	defer c.Put()
	c.Start(objectID, method)
	c.Handle(attr, o.handle)
	if replyAttr >= 0 {
		c.Out(uint16(replyAttr), replyLen)
	}
	return o.gone("destroy", o.ctx.dev.Do(c))
}

// gone turns the result of a destroy into an error. A device that was removed
// has taken its objects along.
func (o *object) gone(op string, err error) error {
	if err == nil || errors.Is(err, unix.EIO) {
		return nil
	}
	return o.ctx.wrap(op, o.String(), err, "")
}

// wrap makes an [Error] of what a command returned.
func (c *Context) wrap(op, object string, err error, detail string) error {
	if err == nil {
		return nil
	}
	var said *Error
	var kind *sentinel
	var errno unix.Errno
	switch {
	case errors.As(err, &said): // a provider knows better what failed
		e := *said
		if e.Object == "" {
			e.Object = object
		}
		if e.Detail == "" {
			e.Detail = detail
		}
		return &e
	case errors.Is(err, os.ErrClosed):
		return &Error{Op: op, Object: object, Kind: ErrClosed}
	case errors.As(err, &kind):
		return &Error{Op: op, Object: object, Kind: kind, Errno: kind.errno, Detail: detail}
	case !errors.As(err, &errno):
		return &Error{Op: op, Object: object, Detail: err.Error()}
	}
	return &Error{Op: op, Object: object, Kind: kindOf(errno), Errno: errno, Detail: detail}
}

// kindOf is the sentinel that an errno stands for, or nil.
func kindOf(errno unix.Errno) error {
	switch errno {
	case unix.EIO, unix.ENODEV, unix.ENOLINK: // the last is mlx5_core's word for firmware that has failed
		return ErrDeviceGone
	case unix.EOPNOTSUPP, unix.EPROTONOSUPPORT, unix.ENOSYS, unix.ENOTTY:
		return ErrNotSupported
	case unix.EBUSY:
		return ErrBusy
	case unix.EINVAL, unix.ENODATA:
		return ErrInvalid
	}
	return nil
}

// notSupported tells whether a command failed because the kernel or the driver
// does not have it.
func notSupported(err error) bool { return kindOf(errnoOf(err)) == ErrNotSupported }

// invalid is the error for an argument that is refused before the kernel sees
// it.
func invalid(op, object, detail string) error {
	return &Error{Op: op, Object: object, Kind: ErrInvalid, Errno: unix.EINVAL, Detail: detail}
}

const noReply = -1

// replies of destroy methods
var (
	destroyCQLen  = ioctl.SizeOf[uapi.IbUverbsDestroyCqResp]()
	destroyQPLen  = ioctl.SizeOf[uapi.IbUverbsDestroyQpResp]()
	destroySRQLen = ioctl.SizeOf[uapi.IbUverbsDestroySrqResp]()
)
