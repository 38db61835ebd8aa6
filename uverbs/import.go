package uverbs

import (
	"errors"

	"github.com/goverbs/goverbs/internal/ioctl"
	"github.com/goverbs/goverbs/internal/uapi"
	"golang.org/x/sys/unix"
)

// Processes may share a device's context, and with it PDs and MRs: one of them
// makes them and hands out [Context.ExportFD], [PD.Handle] and [MR.Handle], the
// descriptor by a Unix socket; the others import them. What was imported belongs
// to its maker: Close only lets go of it here. When the maker closes it, commands
// that name it are refused, with ENOENT.

// ExportFD returns a descriptor of the context, for [ImportDevice] in this
// process or another: the cmd_fd of struct ibv_context. It is the caller's to
// close. [ErrClosed] after Close.
func (c *Context) ExportFD() (int, error) {
	fd, err := c.dev.Dup()
	return fd, c.wrap("export", c.name, err, "")
}

// Handle names the domain to processes that share the context: the handle of
// struct ibv_pd.
func (p *PD) Handle() uint32 { return p.handle }

// Handle names the memory to processes that share the context: the handle of
// struct ibv_mr.
func (m *MR) Handle() uint32 { return m.reg.handle }

// A ProviderImporter is a [Provider] whose contexts may be shared.
type ProviderImporter interface {
	// Import sets up the vendor's part of a context that the kernel has. It asks
	// for what Open was told by one call of query, which takes no input.
	Import(dev *ioctl.Device, query ProviderCommand) (ProviderContext, error)
}

// A ProviderPDImporter is a [ProviderContext] that can tell whether there is a
// PD of a number.
type ProviderPDImporter interface {
	ImportPD(handle uint32) error
}

// ImportDevice opens a context that another process, or another Context of this
// one, has made: ibv_import_device(3). fd is a descriptor of it, which stays the
// caller's. Close of the result closes what it has made itself, and nothing of
// the others'. [ErrInvalid] for another descriptor, [ErrNotSupported] where the
// driver does not share contexts, else the errors of [Open].
func ImportDevice(fd int) (*Context, error) {
	const op = "import device"
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFCHR {
		return nil, invalid(op, "", sitoa(fd)+" is no descriptor of an RDMA device: take what ExportFD returned")
	}
	devices, err := Devices()
	if err != nil {
		return nil, err
	}
	for _, d := range devices {
		if d.Node == "" || unix.Mkdev(d.Major, d.Minor) != st.Rdev {
			continue
		}
		p, err := d.provider()
		if err != nil {
			return nil, err
		}
		own, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			return nil, &Error{Op: op, Object: d.Name, Errno: errnoOf(err), Detail: explainFDs(err)}
		}
		return importContext(ioctl.New(own, d.nodeName(), d.DriverID), d, p)
	}
	return nil, invalid(op, "", "descriptor "+sitoa(fd)+" is of no RDMA device that there is now")
}

// importContext takes dev over, as newContext does.
func importContext(dev *ioctl.Device, device Device, p Provider) (*Context, error) {
	return startContext(dev, device, func(c *Context) (ProviderContext, error) {
		i, ok := p.(ProviderImporter)
		if !ok {
			return nil, &Error{Op: "import", Kind: ErrNotSupported, Detail: "the " + device.Driver() + " driver does not share contexts: open the device"}
		}
		c.imported = true
		// Events of objects that are made by commands without an event file go to
		// the maker's: their numbers must mean nothing there.
		c.lastID = 1<<62 | uint64(randomPSN())<<32
		return i.Import(dev, c.queryContext)
	})
}

// queryContext is getContext of a context that the kernel has. The vendor's reply
// is the first attribute of the driver's own.
func (c *Context) queryContext(_, out []byte) (ProviderReply, error) {
	cmd := ioctl.Get()
	defer cmd.Put()
	cmd.Start(uapi.UVERBS_OBJECT_DEVICE, uapi.UVERBS_METHOD_QUERY_CONTEXT)
	vectors := ioctl.OutOf[uint32](cmd, uapi.UVERBS_ATTR_QUERY_CONTEXT_NUM_COMP_VECTORS)
	support := ioctl.OutOf[uint64](cmd, uapi.UVERBS_ATTR_QUERY_CONTEXT_CORE_SUPPORT)
	reply := cmd.Out(uapi.UVERBS_ID_DRIVER_NS, len(out))
	if err := c.dev.Do(cmd); err != nil {
		return ProviderReply{}, err
	}
	c.vectors, c.coreSupport = int(*vectors), *support
	copy(out, reply)
	return ProviderReply{}, nil
}

// nameEvents adds the file that tells of an object's events, where the kernel
// would take another process's.
func (c *Context) nameEvents(cmd *ioctl.Cmd, attr uint16) {
	if c.imported {
		cmd.FD(attr, c.events.fd)
	}
}

// ImportPD takes part in a PD of the shared context: ibv_import_pd(3). [ErrInvalid]
// when there is no PD of that number, [ErrNotSupported] where the driver does not
// share any, [ErrClosed] after Close of the Context.
func (c *Context) ImportPD(handle uint32) (*PD, error) {
	const op = "import PD"
	i, ok := c.impl.(ProviderPDImporter)
	if !ok {
		return nil, &Error{Op: op, Object: c.name, Kind: ErrNotSupported, Detail: "the driver does not share PDs: make one with AllocPD"}
	}
	p := &PD{}
	p.object = object{ctx: c, kind: "PD", rank: rankPD, destroy: func() error { return nil }}
	err := p.make(func() error {
		p.handle, p.number = handle, handle
		return c.explainImport(op, "PD", handle, i.ImportPD(handle))
	})
	if err != nil {
		return nil, err
	}
	return p, nil
}

// explainImport says that a number means nothing.
func (c *Context) explainImport(op, kind string, handle uint32, err error) error {
	if !errors.Is(err, unix.ENOENT) {
		return c.wrap(op, c.name, err, "")
	}
	return &Error{Op: op, Object: c.name, Kind: ErrInvalid, Errno: unix.ENOENT,
		Detail: "the context has no " + kind + " " + itoa(uint64(handle)) + ": it was closed, or belongs to another context"}
}

// ImportMR takes part in an MR of the shared context: ibv_import_mr(3). Its Bytes
// are nil, for the memory is another process's; its Addr is the address by which
// requests name it. As with [PD.RegDMABuf], on mlx5 it comes before the QPs that
// receive into it. [ErrInvalid] when there is no MR of that number, [ErrClosed]
// after Close of the PD.
func (p *PD) ImportMR(handle uint32) (*MR, error) {
	r := newRegistration(p)
	r.unregistered = "an imported MR"
	r.destroy = func() error { return nil }
	return r.register(func(r *registration) error {
		cmd := ioctl.Get()
		defer cmd.Put()
		cmd.Start(uapi.UVERBS_OBJECT_MR, uapi.UVERBS_METHOD_QUERY_MR)
		cmd.Handle(uapi.UVERBS_ATTR_QUERY_MR_HANDLE, handle)
		lkey := ioctl.OutOf[uint32](cmd, uapi.UVERBS_ATTR_QUERY_MR_RESP_LKEY)
		rkey := ioctl.OutOf[uint32](cmd, uapi.UVERBS_ATTR_QUERY_MR_RESP_RKEY)
		length := ioctl.OutOf[uint64](cmd, uapi.UVERBS_ATTR_QUERY_MR_RESP_LENGTH)
		iova := ioctl.OutOf[uint64](cmd, uapi.UVERBS_ATTR_QUERY_MR_RESP_IOVA)
		if err := r.ctx.explainImport("import MR", "MR", handle, r.ctx.dev.Do(cmd)); err != nil {
			return err
		}
		n := min(*length, maxRoom)
		r.handle, r.number = handle, handle
		r.view = &mrView{foreign: true, addr: *iova, size: int(n), room: int64(n), lkey: *lkey, rkey: *rkey}
		return nil
	})
}
