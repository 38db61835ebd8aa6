package uverbs

import (
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/goverbs/goverbs/internal/driver"
	"github.com/goverbs/goverbs/internal/ioctl"
	"github.com/goverbs/goverbs/internal/leak"
	"github.com/goverbs/goverbs/internal/uapi"
	"golang.org/x/sys/unix"
)

// An object is the common part of PD, MR, CQ, QP, SRQ, AH, completion channel and
// others: a kernel handle, parents that must outlive the object, and children that
// the object must outlive.
//
// # Life
//
// createWith creates an object and holds its parents. Close destroys it: its destroy
// method issues the kernel's command, then finalize releases the resources in
// this process. If destroy fails, the object stays open and keeps its memory. It
// may be closed again. Context.Close destroys all objects and then closes the
// uverbs descriptor. The kernel then removes the objects that it had refused to
// destroy, unless another descriptor of the kernel's context exists, and they are
// finalized: see Context.finalizeAll.
//
// # Lock order
//
// A goroutine acquires locks of the Context and its objects in this order, and
// skips those that it does not need:
//
//  1. Context.creating.mu
//  2. object.mu of a child, then those of its parents; of a QP before those
//     of its type 2 windows
//     and then CQ.finishing
//  3. QP.stateMu, ether.WQ.stateMu
//  4. QP.sq, QP.rq, the queueLock of an SRQ, and the lock of an ether.WQ
//  5. MW.bindMu, then QP.sq
//  6. the queueLock of a CQ; those of a QP's two CQs one after the other
//  7. MW.ownerMu, then windowSet.mu
//  8. eventReader.mu, then Context.mu; driver.MRs.mu, driver.MRs.usersMu, QP.gidMu,
//     gidHints.mu, Context.attrMu, commonChannels.mu; the lock of contexts
//
// A kernel command may be issued under any of 1 to 6. Provider methods are called
// under 4 or 6.
type object struct {
	ctx    *Context
	life   lifecycle // the CQ, QP or other object that this is a part of
	kind   string    // "PD", "MR", ...
	rank   rank
	handle uint32
	number uint32 // shown in errors: the QPN of a QP, which may be set later, and the handle of others
	id     uint64 // identifies the object in the kernel's events, see Context.id; 0 for objects without events
	exists bool   // the kernel has created it, even if createWith has not finished
	// external says that Close destroys nothing in the kernel: the object belongs to another
	// Context, or is known only to this process.
	external bool
	common   bool // the Context has created it for others: it does not count as in use
	ticket   *leak.Ticket

	parents    []*object
	room       [2]*object // backing array of parents in most objects
	prev, next *object    // links of Context.objects, guarded by Context.mu

	mu     sync.Mutex
	closed bool
	kept   bool // closed with its Context, but the kernel may still have it
	users  int  // open children
}

// A lifecycle ends the life of an object.
type lifecycle interface {
	// destroy destroys the object in the kernel. If it fails, the object stays open.
	destroy() error
	// retire releases rings and memory after the kernel has destroyed the object.
	retire() error
}

// destroy is for kinds of objects that are always external.
func (*object) destroy() error { return nil }

// retire is for kinds of objects without rings and memory.
func (*object) retire() error { return nil }

// hasObject is implemented by all kinds of objects.
type hasObject interface{ asObject() *object }

func (o *object) asObject() *object { return o }

// A rank is an object's position in the order in which Context.Close destroys
// objects.
type rank uint8

const (
	rankExtension rank = iota
	rankMW
	rankQP
	rankAfterQPs
	rankAfterTables
	rankAH
	rankSRQ
	rankCQ
	rankMR
	rankDM
	rankXRCD
	rankParent
	rankTD
	rankPD
	rankChannel
	ranks
)

// An objectList is the list of a context's objects. Context.mu guards it.
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

func (l *objectList) has(o *object) bool { return l.first == o || o.prev != nil }

// all is an iterator. The list must not change meanwhile.
func (l *objectList) all(yield func(*object) bool) {
	for o := l.first; o != nil && yield(o); o = o.next {
	}
}

// addParents makes o a child of parents. For most objects it allocates no slice.
func (o *object) addParents(parents ...*object) {
	if o.parents == nil {
		o.parents = o.room[:0]
	}
	o.parents = append(o.parents, parents...)
}

func (o *object) String() string {
	return o.ctx.name + " " + o.kind + " " + strconv.FormatUint(uint64(atomic.LoadUint32(&o.number)), 10)
}

// hold counts a child. Until drop, o cannot be closed.
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

// holdAll holds all parents of o, or none.
func (o *object) holdAll() error {
	for i, p := range o.parents {
		if err := p.hold(); err != nil {
			dropAll(o.parents[:i])
			return &Error{Op: "create " + o.kind, Object: p.String(), Kind: err, Detail: "the " + p.kind + " has been closed"}
		}
	}
	return nil
}

func dropAll(parents []*object) {
	for _, p := range parents {
		p.drop()
	}
}

// createWith runs create with the parents held and registers o with its context. create
// issues the create command and sets o.handle. If create fails, or panics in a
// function of the program, createWith undoes everything.
func (o *object) createWith(create func() error) error {
	c := o.ctx
	created := false
	defer func() {
		if !created {
			c.forget(o.id)
		}
	}()
	if !c.creating.begin() {
		return &Error{Op: "create " + o.kind, Object: c.name, Kind: ErrClosed, Detail: "the Context has been closed"}
	}
	defer c.creating.end()
	if err := o.holdAll(); err != nil {
		return err
	}
	defer func() {
		if !created {
			o.destroyIfExists(o.life.destroy) // if create panicked after its command, the kernel object exists
			dropAll(o.parents)
		}
	}()
	if err := create(); err != nil {
		return err
	}
	created = true
	c.mu.Lock()
	c.objects.add(o)
	c.mu.Unlock()
	o.ticket = leak.Track(c.name, o.kind)
	return nil
}

// close destroys o. Further calls return nil.
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
	if !o.external {
		if err := o.life.destroy(); err != nil {
			return err
		}
	}
	return o.finalize()
}

// usedBy lists the children that keep o from being closed. The caller holds o.mu.
func (o *object) usedBy() string {
	const most = 4
	var names []string
	o.ctx.mu.Lock()
	for child := range o.ctx.objects.all {
		if slices.Contains(child.parents, o) {
			names = append(names, child.kind+" "+strconv.FormatUint(uint64(atomic.LoadUint32(&child.number)), 10))
		}
	}
	o.ctx.mu.Unlock()
	if len(names) == 0 {
		return "an object is being created on it"
	}
	slices.Sort(names)
	if more := len(names) - most; more > 0 {
		names = append(names[:most], strconv.Itoa(more)+" more")
	}
	return "still in use by " + strings.Join(names, ", ") + ", which must be closed first"
}

// finalize releases an object's resources in this process after the kernel has
// destroyed it. The caller holds o.mu. The parents are dropped last, because retire
// may use them and they must not be closed meanwhile. The object stays in the
// context's list until then, so that Context.Close waits for it.
func (o *object) finalize() error {
	o.closed = true
	o.ticket.Done()
	o.ctx.forget(o.id)
	err := o.life.retire()
	dropAll(o.parents)
	o.ctx.mu.Lock()
	o.ctx.objects.remove(o)
	o.ctx.mu.Unlock()
	return err
}

// setHandle records the handle of a successful create command, for destroyIfExists.
func (o *object) setHandle(r driver.Reply, err error) (driver.Reply, error) {
	if err == nil {
		o.handle, o.number, o.exists = r.Handle, r.Handle, true
	}
	return r, err
}

// destroyIfExists destroys what a create command has created, if a later step fails. It
// reports whether the kernel has no object then.
func (o *object) destroyIfExists(destroy func() error) (gone bool) {
	if !o.exists {
		return true
	}
	o.exists = false
	// The caller reports the first error. If destroy fails too, the object stays in
	// the kernel until the context is closed.
	return destroy() == nil
}

// undo is destroyIfExists for a queue whose creation has failed with an error, which it
// returns. The provider's part, if not nil, is retired after that: the device may use its
// memory as long as the kernel's object exists.
func (o *object) undo(err error, destroy func() error, part interface{ Retire(inUse bool) error }) error {
	if !o.destroyIfExists(destroy) || part == nil {
		return err
	}
	if failure := part.Retire(false); failure != nil {
		return errors.Join(err, failure)
	}
	return err
}

// destroyHandle issues a destroy method for o.handle. The object is destroyed only
// if the kernel reports success. Until then a device may write to its memory.
func (o *object) destroyHandle(objectID, method, attr uint16) error {
	c := ioctl.Get()
	defer c.Put()
	c.Start(objectID, method)
	c.Handle(attr, o.handle)
	return o.destroyCommand(c)
}

// destroyHandleReply is destroyHandle for a method that has a reply.
func (o *object) destroyHandleReply(objectID, method, attr, replyAttr uint16, replyLen int) error {
	c := ioctl.Get()
	defer c.Put()
	c.Start(objectID, method)
	c.Handle(attr, o.handle)
	c.Out(replyAttr, replyLen)
	return o.destroyCommand(c)
}

func (o *object) destroyCommand(c *ioctl.Cmd) error {
	err := o.ctx.dev.Do(c)
	if err == nil {
		return nil
	}
	if mayMeanGone(err) && o.ctx.removed() {
		// The command was issued while the driver was being removed. By now the
		// kernel's RDMA core destroys objects without the driver.
		err = o.ctx.dev.Do(c)
	}
	detail := ""
	if mayMeanGone(err) {
		detail = "the kernel has not destroyed it, so it stays open with its memory: Close may be called again, " +
			"and closing the Context ends it in any case"
	}
	return o.ctx.wrap("destroy", o.String(), err, detail)
}

// lengths of the replies to destroy methods
var (
	destroyCQLen  = ioctl.SizeOf[uapi.IbUverbsDestroyCqResp]()
	destroyQPLen  = ioctl.SizeOf[uapi.IbUverbsDestroyQpResp]()
	destroySRQLen = ioctl.SizeOf[uapi.IbUverbsDestroySrqResp]()
)

type idleHook struct {
	f   func() error
	but []hasObject
}

// idled calls the hook after an object was closed, if no other object is left.
func (c *Context) idled(closing error) error {
	h := c.idle.Load()
	if h == nil || closing != nil || c.inUse(h.but) {
		return closing
	}
	return errors.Join(closing, h.f())
}

// inUse reports whether there are objects except the given ones and the channels that the Context has created itself.
func (c *Context) inUse(but []hasObject) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for o := range c.objects.all {
		if !o.common && !slices.ContainsFunc(but, func(b hasObject) bool { return o == b.asObject() }) {
			return true
		}
	}
	return false
}
