package uverbs

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/goverbs/goverbs/internal/ioctl"
	"github.com/goverbs/goverbs/internal/leak"
	"github.com/goverbs/goverbs/internal/uapi"
	"golang.org/x/sys/unix"
)

// An MR is registered memory: the device may read and, as its Access says,
// write it. Its methods may be called from any number of goroutines; who may
// touch its bytes is between the program and its peers.
//
// The memory stays where it is until Close has returned. An MR that is dropped
// without Close stays registered until its Context is closed: with
// GOVERBS_LEAKS=1 in the environment it is reported.
type MR struct {
	reg    *registration
	buf    []byte
	addr   uint64
	lkey   uint32
	rkey   uint32
	length atomic.Int64 // closedLength once closed
}

// A registration is the part of an MR that lives until Close, whatever the
// program drops. It does not point to the MR.
type registration struct {
	object
	buf    []byte
	access Access
	lkey   uint32
	rkey   uint32
	pin    runtime.Pinner
	own    bool // buf was mapped by Alloc
	orphan bool // no MR points here any more: nobody can touch buf
}

// RegMR registers the caller's bytes: ibv_reg_mr(3). They stay pinned, and may
// be on the Go heap; do not append beyond them.
//
// [ErrMemlock] says that the limit on locked memory is too low.
func (p *PD) RegMR(b []byte, a Access) (*MR, error) {
	if len(b) == 0 {
		return nil, invalid("register memory", p.String(), "the memory is empty")
	}
	r := newRegistration(p, b, a)
	r.pin.Pin(&b[0])
	m, err := r.register(p)
	if err != nil {
		r.pin.Unpin()
	}
	return m, err
}

// Alloc maps n zero bytes outside the Go heap and registers them. From 2 MiB
// on they ask for huge pages. After Close the bytes fault when touched, rather
// than be another buffer's, until the MR is unreachable.
func (p *PD) Alloc(n int, a Access) (*MR, error) {
	if n <= 0 {
		return nil, invalid("allocate memory", p.String(), "the size must be positive: "+strconv.Itoa(n))
	}
	buf, err := mapPages(n)
	if err != nil {
		return nil, p.ctx.wrap("allocate memory", p.String(), err, fmt.Sprintf("the system has no %d bytes", n))
	}
	r := newRegistration(p, buf, a)
	r.own = true
	m, err := r.register(p)
	if err != nil {
		return nil, errors.Join(err, unmapPages(buf))
	}
	runtime.AddCleanup(m, (*registration).unreachable, r)
	return m, nil
}

func newRegistration(p *PD, buf []byte, a Access) *registration {
	r := &registration{buf: buf, access: a}
	r.object = object{ctx: p.ctx, kind: "MR", rank: rankMR, parents: []*object{&p.object}}
	r.destroy, r.retire = r.dereg, r.letGo
	return r
}

func (r *registration) register(p *PD) (*MR, error) {
	if err := r.make(func() error { return r.reg(p) }); err != nil {
		return nil, err
	}
	m := &MR{reg: r, buf: r.buf, addr: addressOf(r.buf), lkey: r.lkey, rkey: r.rkey}
	m.length.Store(int64(len(r.buf)))
	if leak.Enabled() {
		runtime.AddCleanup(m, reportDropped, r)
	}
	return m, nil
}

func (r *registration) reg(p *PD) error {
	cmd := ioctl.Get()
	defer cmd.Put()
	addr := addressOf(r.buf)
	resp := ioctl.Write[uapi.IbUverbsRegMrResp](cmd, uapi.IB_USER_VERBS_CMD_REG_MR, &uapi.IbUverbsRegMr{
		Start: addr, Length: uint64(len(r.buf)), HcaVa: addr, PdHandle: p.handle, AccessFlags: uint32(r.access)})
	if err := r.ctx.dev.Do(cmd); err != nil {
		return explainRegMR(p, len(r.buf), r.access, err)
	}
	r.handle, r.number = resp.MrHandle, resp.MrHandle
	r.lkey, r.rkey = resp.Lkey, resp.Rkey
	return nil
}

func (r *registration) dereg() error {
	return r.destroyHandle(uapi.UVERBS_OBJECT_MR, uapi.UVERBS_METHOD_MR_DESTROY, uapi.UVERBS_ATTR_DESTROY_MR_HANDLE, noReply, 0)
}

// letGo gives the memory back, once the kernel has let go of it.
func (r *registration) letGo() error {
	switch {
	case !r.own:
		r.pin.Unpin()
		return nil
	case r.orphan:
		return unmapPages(r.buf)
	}
	return forbidPages(r.buf)
}

// unreachable runs when the MR is: its address range may be used again as soon
// as the kernel has let go of it.
func (r *registration) unreachable() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.orphan = true
	if r.closed {
		// Unmapping what this process mapped cannot fail, and nobody is left
		// to be told.
		_ = unmapPages(r.buf)
	}
}

func reportDropped(r *registration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.closed {
		fmt.Fprintf(os.Stderr, "uverbs: MR of %d bytes dropped without Close; its memory stays registered until its Context is closed\n%v\n", len(r.buf), r.ticket)
	}
}

// Bytes returns the memory. The bytes of an MR of [PD.Alloc] are not to be
// touched after Close: they fault.
func (m *MR) Bytes() []byte { return m.buf }

// Addr is where the memory begins: what peers name in WRITE and READ.
func (m *MR) Addr() uint64 { return m.addr }

// Len is the size in bytes.
func (m *MR) Len() int { return len(m.buf) }

// LKey names the memory in an SGE of this process.
func (m *MR) LKey() uint32 { return m.lkey }

// RKey names the memory to peers.
func (m *MR) RKey() uint32 { return m.rkey }

// closedLength is a length that no range fits, not even an empty one.
const closedLength = -1

// badLength marks an SGE that every post refuses.
const badLength = ^uint32(0)

// SGE names n bytes from offset off. A range outside the MR, a closed or a nil
// MR yields an SGE that every post refuses with [ErrRange].
func (m *MR) SGE(off, n int) SGE {
	if m == nil || off < 0 || n < 0 || int64(off) > m.length.Load()-int64(n) || n > MaxMessage {
		return SGE{Length: badLength}
	}
	return SGE{Addr: m.addr + uint64(off), Length: uint32(n), LKey: m.lkey}
}

// Close deregisters the memory: ibv_dereg_mr(3). Work requests in flight that
// use it complete with a protection error. It is idempotent.
func (m *MR) Close() error {
	m.length.Store(closedLength)
	err := m.reg.close()
	if err != nil {
		m.reg.mu.Lock()
		if !m.reg.closed { // the kernel keeps it
			m.length.Store(int64(len(m.buf)))
		}
		m.reg.mu.Unlock()
	}
	return err
}

// explainRegMR says why registration failed, and what mends it.
func explainRegMR(p *PD, n int, a Access, err error) error {
	op, obj := "register memory", p.String()
	errno := errnoOf(err)
	switch errno {
	case unix.ENOMEM:
		if text := explainMemlock(n); text != "" {
			return &Error{Op: op, Object: obj, Kind: ErrMemlock, Errno: errno, Detail: text}
		}
		return p.ctx.wrap(op, obj, err, "the kernel has no memory for it")
	case unix.EINVAL:
		if a&(RemoteWrite|RemoteAtomic) != 0 && a&LocalWrite == 0 {
			return p.ctx.wrap(op, obj, err, "RemoteWrite and RemoteAtomic need LocalWrite beside them")
		}
		return p.ctx.wrap(op, obj, err, fmt.Sprintf("the device does not take access %v, or not %d bytes", a, n))
	case unix.EFAULT:
		return p.ctx.wrap(op, obj, err, "the memory is not mapped, or is read-only while the access includes LocalWrite")
	}
	return p.ctx.wrap(op, obj, err, "")
}

// explainMemlock tells how n more bytes stand to the limit on locked memory,
// or "" when the limit is not the cause.
func explainMemlock(n int) string {
	var lim unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &lim); err != nil || lim.Cur == unix.RLIM_INFINITY {
		return ""
	}
	pinned := statusKiB("VmPin") * 1024
	if uint64(pages(n))+pinned <= lim.Cur {
		return ""
	}
	return fmt.Sprintf("%d bytes are needed and %d are pinned already, but RLIMIT_MEMLOCK is %d bytes: raise it"+
		" (`ulimit -l unlimited`, LimitMEMLOCK=infinity in a systemd unit, --ulimit memlock=-1 for a container) or give the process CAP_IPC_LOCK",
		n, pinned, lim.Cur)
}

// statusKiB reads a line of /proc/self/status, 0 when there is none.
func statusKiB(key string) uint64 {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(status)) {
		if rest, ok := strings.CutPrefix(line, key+":"); ok {
			if f := strings.Fields(rest); len(f) > 0 {
				v, _ := strconv.ParseUint(f[0], 10, 64) // a line of another form counts as 0
				return v
			}
		}
	}
	return 0
}
