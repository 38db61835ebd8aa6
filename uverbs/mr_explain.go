package uverbs

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

const opRegister = "register memory"

// explainRegMR explains why the kernel refused to register memory, and how to fix
// it.
func (c *Context) explainRegMR(op, obj string, b []byte, iova uint64, a Access, err error) error {
	errno := errnoOf(err)
	switch errno {
	case unix.ENOMEM:
		// On-demand memory is not pinned.
		if text := explainMemlock(c.dev, pinnedPages(addressOf(b), len(b)), ""); text != "" && a&OnDemand == 0 {
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

// needsLocalWrite reports whether a lacks the LocalWrite that its other flags
// require.
func needsLocalWrite(a Access) bool { return a&(RemoteWrite|RemoteAtomic) != 0 && a&LocalWrite == 0 }

const localWriteText = "RemoteWrite and RemoteAtomic need LocalWrite beside them"

func explainAccess(b []byte, iova uint64, a Access) string {
	page := uint64(os.Getpagesize())
	switch {
	case needsLocalWrite(a):
		return localWriteText
	case iova%page != addressOf(b)%page:
		return fmt.Sprintf("the address %#x lies %d bytes into its page, the memory %d: the two must be the same",
			iova, iova%page, addressOf(b)%page)
	}
	return fmt.Sprintf("the device does not accept access %v, or not %d bytes", a, len(b))
}

// lacksAccess explains which access flag the device does not support. It returns ""
// if it finds none.
func (c *Context) lacksAccess(a Access) string {
	attr, err := c.QueryDevice()
	if err != nil {
		return ""
	}
	switch {
	case a&OnDemand != 0 && attr.ODP.General&ODPSupport == 0:
		return "the device has no on-demand paging (DeviceAttr.ODP): leave OnDemand out"
	case a&FlushGlobal != 0 && attr.CapFlags&DeviceFlushGlobal == 0:
		return "the device has no FLUSH to global visibility (DeviceAttr.CapFlags): leave FlushGlobal out"
	case a&FlushPersistent != 0 && attr.CapFlags&DeviceFlushPersistent == 0:
		return "the device has no FLUSH to persistence (DeviceAttr.CapFlags): leave FlushPersistent out"
	}
	return ""
}

// explainImplicit explains why the kernel refused to register the whole address
// space.
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
