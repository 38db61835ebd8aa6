package uverbs

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

const opRegister = "register memory"

// explainRegMR says why memory was refused, and what mends it.
func (c *Context) explainRegMR(op, obj string, b []byte, iova uint64, a Access, err error) error {
	errno := errnoOf(err)
	switch errno {
	case unix.ENOMEM:
		if text := explainMemlock(len(b)); text != "" {
			return &Error{Op: op, Object: obj, Kind: ErrMemlock, Errno: errno, Detail: text}
		}
		return c.wrap(op, obj, err, "the kernel has no memory for it")
	case unix.EINVAL, unix.EOPNOTSUPP:
		if text := c.lacksAccess(a); text != "" {
			return &Error{Op: op, Object: obj, Kind: ErrNotSupported, Errno: errno, Detail: text}
		}
		return c.wrap(op, obj, err, explainAccess(b, iova, a))
	case unix.EFAULT:
		return c.wrap(op, obj, err, "the memory is not mapped, or is read-only while the access includes LocalWrite")
	}
	return c.wrap(op, obj, err, "")
}

// needsLocalWrite tells of rights that do not go without LocalWrite.
func needsLocalWrite(a Access) bool { return a&(RemoteWrite|RemoteAtomic) != 0 && a&LocalWrite == 0 }

const localWriteText = "RemoteWrite and RemoteAtomic need LocalWrite beside them"

func explainAccess(b []byte, iova uint64, a Access) string {
	page := uint64(os.Getpagesize())
	switch {
	case needsLocalWrite(a):
		return localWriteText
	case iova%page != addressOf(b)%page:
		return fmt.Sprintf("the address %#x lies %d bytes into its page, the memory %d: the two must be the same", iova, iova%page, addressOf(b)%page)
	}
	return fmt.Sprintf("the device does not take access %v, or not %d bytes", a, len(b))
}

// lacksAccess looks for a right that the device says it does not have.
func (c *Context) lacksAccess(a Access) string {
	attr, err := c.QueryDevice()
	if err != nil {
		return ""
	}
	switch {
	case a&OnDemand != 0 && attr.ODP.General&ODPSupport == 0:
		return "the device has no on-demand paging (DeviceAttr.ODP): leave OnDemand out"
	case a&FlushGlobal != 0 && attr.CapFlagsEx&DeviceFlushGlobal == 0:
		return "the device has no FLUSH to global visibility (DeviceAttr.CapFlagsEx): leave FlushGlobal out"
	case a&FlushPersistent != 0 && attr.CapFlagsEx&DeviceFlushPersistent == 0:
		return "the device has no FLUSH to persistence (DeviceAttr.CapFlagsEx): leave FlushPersistent out"
	}
	return ""
}

// explainImplicit says why the whole address space was refused.
func (p *PD) explainImplicit(a Access, err error) error {
	if a&OnDemand == 0 {
		return p.ctx.wrap(opRegister, p.String(), err, "the whole memory can be registered with OnDemand alone")
	}
	if attr, qerr := p.ctx.QueryDevice(); qerr == nil && attr.ODP.General&ODPImplicit == 0 {
		return &Error{Op: opRegister, Object: p.String(), Kind: ErrNotSupported, Errno: errnoOf(err),
			Detail: "the device has no implicit on-demand paging (DeviceAttr.ODP): register ranges by RegMR"}
	}
	return p.ctx.wrap(opRegister, p.String(), err, "")
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
