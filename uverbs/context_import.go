package uverbs

import (
	"errors"

	"github.com/goverbs/goverbs/internal/driver"
	"github.com/goverbs/goverbs/internal/ioctl"
	"github.com/goverbs/goverbs/internal/uapi"
	"golang.org/x/sys/unix"
)

// Processes may share a device's context, and with it PDs, MRs and device memory. One process
// creates them and passes [Context.ExportFD], [PD.Handle], [MR.Handle] and [DM.Handle] to the
// others, the descriptor over a Unix socket. The others import them. An imported object belongs
// to the process that created it: Close of the imported object only ends its use here. After the
// creator has closed it, commands that use it fail with ENOENT.

// ExportFD returns a descriptor of the context, for [ImportDevice] in this process or another:
// the cmd_fd of struct ibv_context. The caller must close it. ExportFD returns [ErrClosed]
// after Close.
func (c *Context) ExportFD() (int, error) {
	c.exported.Store(true)
	fd, err := c.dev.Dup()
	return fd, c.wrap("export", c.name, err, explainFDs(err))
}

// Handle returns the kernel's handle of the PD, for processes that share the context: the
// handle of struct ibv_pd.
func (p *PD) Handle() uint32 { return p.handle }

// Handle returns the kernel's handle of the MR, for processes that share the context: the
// handle of struct ibv_mr.
func (m *MR) Handle() uint32 { return m.reg.handle }

// Handle returns the kernel's handle of the device memory, for processes that share the context:
// the handle of struct ibv_dm.
func (d *DM) Handle() uint32 { return d.handle }

// ImportDevice opens a context that another process, or another Context of this process, has
// created: ibv_import_device(3). fd is a descriptor of the context. It still belongs to the
// caller. Close of the result closes only the objects that were created on it. ImportDevice
// returns [ErrInvalid] for any other descriptor, [ErrNotSupported] if the driver does not share
// contexts, or an error as [Open] does.
func ImportDevice(fd int) (*Context, error) {
	const op = "import device"
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFCHR {
		return nil, invalid(op, "", sitoa(fd)+" is not a descriptor of an RDMA device: pass the result of ExportFD")
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

// importContext takes ownership of dev, as newContext does.
func importContext(dev *ioctl.Device, device Device, p provider) (*Context, error) {
	return startContext(dev, device, func(c *Context) (providerContext, error) {
		i, ok := p.(providerImporter)
		if !ok {
			return nil, &Error{Op: "import", Kind: ErrNotSupported,
				Detail: "the " + device.Driver() + " driver does not share contexts: open the device"}
		}
		c.imported = true
		// Commands without an event file deliver the events of their objects to the event file
		// of the context's creator. There these user handles must not match any object.
		c.ids.base = 1<<62 | uint64(randomPSN())<<32
		return i.Import(dev, c.queryContext)
	})
}

// queryContext queries an existing context of the kernel, as getContext creates one. The reply
// for the provider is the first driver-specific attribute.
func (c *Context) queryContext(_, out []byte) (driver.Reply, error) {
	cmd := ioctl.Get()
	defer cmd.Put()
	cmd.Start(uapi.UVERBS_OBJECT_DEVICE, uapi.UVERBS_METHOD_QUERY_CONTEXT)
	vectors := ioctl.OutOf[uint32](cmd, uapi.UVERBS_ATTR_QUERY_CONTEXT_NUM_COMP_VECTORS)
	support := ioctl.OutOf[uint64](cmd, uapi.UVERBS_ATTR_QUERY_CONTEXT_CORE_SUPPORT)
	reply := cmd.Out(uapi.UVERBS_ID_DRIVER_NS, len(out))
	if err := c.dev.Do(cmd); err != nil {
		return driver.Reply{}, err
	}
	c.vectors, c.coreSupport = int(*vectors), *support
	copy(out, reply)
	return driver.Reply{}, nil
}

// ImportPD imports a PD of the shared context: ibv_import_pd(3). It returns [ErrInvalid] if no
// PD has this handle, [ErrNotSupported] if the driver does not share PDs, and [ErrClosed] after
// Close of the Context.
func (c *Context) ImportPD(handle uint32) (*PD, error) {
	const op = "import PD"
	i, ok := c.impl.(driver.PDImporter)
	if !ok {
		return nil, &Error{Op: op, Object: c.name, Kind: ErrNotSupported,
			Detail: "the driver does not share PDs: allocate one with AllocPD"}
	}
	p := new(PD)
	p.object = object{ctx: c, life: p, kind: "PD", rank: rankPD, external: true}
	err := p.createWith(func() error {
		p.handle, p.number, p.driver.Handle = handle, handle, handle
		return c.explainImport(op, "PD", handle, i.ImportPD(handle))
	})
	if err != nil {
		return nil, err
	}
	return p, nil
}

// explainImport adds the cause if a handle does not exist.
func (c *Context) explainImport(op, kind string, handle uint32, err error) error {
	if !errors.Is(err, unix.ENOENT) {
		return c.wrap(op, c.name, err, "")
	}
	return &Error{Op: op, Object: c.name, Kind: ErrInvalid, Errno: unix.ENOENT,
		Detail: "the context has no " + kind + " " + itoa(uint64(handle)) + ": it was closed, or belongs to another context"}
}

// ImportMR imports an MR of the shared context: ibv_import_mr(3). Its Bytes returns nil,
// because the memory belongs to another process. Its Addr is the address for requests. As with
// [PD.RegDMABuf], on mlx5 call it before you create the QPs that receive into the memory. It
// returns [ErrInvalid] if no MR has this handle, and [ErrClosed] after Close of the PD.
func (p *PD) ImportMR(handle uint32) (*MR, error) {
	r := newRegistration(p)
	r.unregistered, r.external = "an imported MR", true
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

// ImportDM imports device memory of the shared context: ibv_import_dm(3). Close of the result,
// which is ibv_unimport_dm(3), ends only the use here. ImportDM returns [ErrInvalid] if no
// device memory has this handle, [ErrNotSupported] if the driver has none or the kernel does
// not share it, and [ErrClosed] after Close of the Context.
func (c *Context) ImportDM(handle uint32) (*DM, error) {
	const op = "import device memory"
	p, ok := c.impl.(driver.DMs)
	if !ok {
		return nil, &Error{Op: op, Object: c.name, Kind: ErrNotSupported, Errno: unix.EOPNOTSUPP,
			Detail: "the driver has no device memory"}
	}
	d := new(DM)
	d.object = object{ctx: c, life: d, kind: "DM", rank: rankDM, external: true}
	err := d.createWith(func() (err error) {
		d.handle, d.number = handle, handle
		d.impl, d.size, err = p.ImportDM(handle)
		return c.explainImport(op, "device memory", handle, err)
	})
	if err != nil {
		return nil, err
	}
	return d, nil
}
