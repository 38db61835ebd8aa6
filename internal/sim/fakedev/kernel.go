package fakedev

import (
	"bytes"
	"encoding/binary"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/ioctl"
	"github.com/goverbs/goverbs/internal/race"
	"github.com/goverbs/goverbs/internal/sim/devfile"
	"github.com/goverbs/goverbs/internal/sim/ioctltest"
	"github.com/goverbs/goverbs/internal/uapi"
)

// A Driver is what a driver does with the commands of one file. All functions are called in the loop.
type Driver struct {
	// Commands are executed when ioctltest has accepted a command with the name. If a method that creates an object
	// fails, the object is removed. Those for ALLOC_PD and CREATE_AH call [Kernel.AllocPD] and [Kernel.CreateAH];
	// REG_MR is [Kernel.RegMR] unless there is another one.
	Commands map[string]func(ioctl.Call) error
	// Lacks are the commands that the driver refuses with EOPNOTSUPP.
	Lacks []string
	// Kinds are the objects of the file but address handles and regions, in the order in which a process that ends
	// destroys them.
	Kinds []Kind
	// Keys returns the keys of region number n of the device.
	Keys func(n uint32) (lkey, rkey uint32)
	// Access are the rights that regions can have; 0: all.
	Access uint32
	// Admit, if not nil, returns the error of a MODIFY_QP that the driver refuses.
	Admit func(r *uapi.IbUverbsModifyQp, from, to uint8) error
	// Modify changes the device's QP. It is called when the command has succeeded.
	Modify func(r *uapi.IbUverbsModifyQp, from, to uint8)
	// Query completes the reply to QUERY_QP, which has the state.
	Query func(handle uint32, r *uapi.IbUverbsQueryQpResp)
	// Received, if not nil, is called after receives were posted to the queue at an address, if a program of this process
	// says so.
	Received func(queue uint64)
	// Mapped, if not nil, is called when a program of this process has mapped a ring.
	Mapped func(key uint64, mem []byte)
	// Closed, if not nil, frees what remains when all objects are destroyed.
	Closed func()
}

// A Kind are the objects of a kind of a file.
type Kind struct {
	name    string // in the names of commands
	there   func(handle uint32) bool
	destroy func(handle uint32)
	all     func()
}

// KindOf returns the kind of the objects that a map has by handle. They are removed from the map and then destroyed.
// name is that in the names of commands, such as QP in QP.DESTROY.
func KindOf[T any](name string, all map[uint32]T, destroy func(T)) Kind {
	k := Kind{name: name, there: func(h uint32) bool { _, there := all[h]; return there }}
	k.destroy = func(h uint32) {
		if v, there := all[h]; there {
			delete(all, h)
			destroy(v)
		}
	}
	k.all = func() {
		for h := range all {
			k.destroy(h)
		}
	}
	return k
}

// A Kernel handles the commands of one open file. It implements ioctl.Kernel, ioctl.Closer, ioctl.Doorbells,
// ioctl.Posts and ioctl.Maps.
type Kernel struct {
	*ioctltest.Kernel
	Dev    *Device
	File   *devfile.File
	Memory devfile.Memory    // of the program
	PDs    map[uint32]uint32 // numbers by handle

	driver   Driver
	ahs      map[uint32]*AH // by handle
	mrs      map[uint32]*MR
	pinned   uint64 // bytes
	modified func() // what remains of a MODIFY_QP
}

func (d *Device) newKernel(file *devfile.File) *Kernel {
	core := ioctltest.NewKernel(d.Fabric.model.Driver)
	d.describe(core)
	core.Name = d.Fabric.model.Package + ": " + d.Name() + ": "
	return &Kernel{Kernel: core, Dev: d, File: file, PDs: map[uint32]uint32{}, ahs: map[uint32]*AH{},
		mrs: map[uint32]*MR{}}
}

// use completes the kernel with its driver.
func (k *Kernel) use(d Driver) {
	k.Refuse = map[string]unix.Errno{}
	for _, name := range d.Lacks {
		k.Refuse[name] = unix.EOPNOTSUPP
	}
	k.OnQueryQP = d.Query
	k.OnModifyQP = func(r *uapi.IbUverbsModifyQp, from, to uint8) error {
		if d.Admit != nil {
			if err := d.Admit(r, from, to); err != nil {
				return err
			}
		}
		attr := *r
		k.modified = func() { d.Modify(&attr, from, to) }
		return nil
	}
	if d.Commands["REG_MR"] == nil {
		d.Commands["REG_MR"] = k.RegMR
	}
	d.Kinds = append(d.Kinds, KindOf("AH", k.ahs, k.destroyAH), KindOf("MR", k.mrs, k.destroyMR))
	k.driver = d
}

// UseProcess makes the file that of a program in another process.
func (k *Kernel) UseProcess(p ioctltest.Process) error {
	k.Dev.Fabric.Loop.Run(func() { k.Memory.Process = p })
	k.Kernel.Set(func() { k.Foreign = true })
	return nil
}

// Problem reports a mistake of the program. One of another process may do anything.
func (k *Kernel) Problem(format string, args ...any) {
	if k.Memory.Process == nil || k.Dev.Fabric.model.Strict {
		k.Dev.Fabric.Problem(format, args...)
	}
}

// Check reports an error of the model.
func (k *Kernel) Check(err error) {
	if err != nil {
		k.Dev.Fabric.Problem("%v", err)
	}
}

// Closed implements ioctl.Closer.
func (k *Kernel) Closed() {
	k.Dev.Fabric.Loop.Run(func() {
		for _, kind := range k.driver.Kinds {
			kind.all()
		}
		if k.Memory.Process != nil {
			k.Kernel.Abandon()
		}
		if f := k.driver.Closed; f != nil {
			f()
		}
		k.Check(k.File.Close())
	})
}

// Doorbell implements ioctl.Doorbells. To the race detector, the device is a separate thread.
func (k *Kernel) Doorbell(page, offset uint32, b []byte) {
	if race.Enabled {
		b = bytes.Clone(b)
	}
	race.Apart(func() {
		k.Dev.Fabric.Loop.Run(func() {
			if err := k.File.Store(page, offset, b); err != nil {
				k.Problem("%v", err)
			}
		})
	})
}

// Received implements ioctl.Posts, as does Full. It is for devices without doorbells for receives.
func (k *Kernel) Received(queue uint64) {
	if f := k.driver.Received; f != nil {
		race.Apart(func() { k.Dev.Fabric.Loop.Run(func() { f(queue) }) })
	}
}

// Full does nothing.
func (k *Kernel) Full(uint32) {}

// Mapped implements ioctl.Maps.
func (k *Kernel) Mapped(offset int64, mem []byte) {
	if f := k.driver.Mapped; f != nil {
		k.Dev.Fabric.Loop.Run(func() { f(uint64(offset), mem) })
	}
}

// Mapping returns what is at an offset of the file, for a program of another process.
func (k *Kernel) Mapping(offset, length uint64) (page uint32, register bool, errno unix.Errno) {
	k.Dev.Fabric.Loop.Run(func() { page, register, errno = k.File.Mapping(offset, length) })
	return page, register, errno
}

// Write implements ioctl.Kernel. Commands are not written.
func (k *Kernel) Write([]byte) error { return unix.EACCES }

// Ioctl implements ioctl.Kernel.
func (k *Kernel) Ioctl(c ioctl.Call) (err error) {
	k.Dev.Fabric.Loop.Run(func() { err = k.ioctl(c) })
	return err
}

func (k *Kernel) ioctl(c ioctl.Call) error {
	if err := k.Kernel.Ioctl(c); err != nil {
		return err
	}
	name, handle, created := ioctltest.Describe(c, k.Driver)
	for _, kind := range k.driver.Kinds {
		if kind.name+".DESTROY" == name {
			kind.destroy(handle)
		}
	}
	if f := k.modified; f != nil {
		k.modified = nil
		f()
	}
	f := k.driver.Commands[name]
	if f == nil {
		return nil
	}
	err := f(c)
	if err != nil && created {
		k.Forget(handle)
	}
	return err
}

// Later calls f when the command that may be running has ended, which holds the fake kernel's lock.
func (k *Kernel) Later(f func()) { k.Dev.Fabric.Loop.Post(f) }

// Completed sends the event of a CQ with a handle to its channel, if it has one.
func (k *Kernel) Completed(cq uint32) {
	k.Later(func() { _ = k.Complete(cq) })
}

// Happened sends an asynchronous event of an object.
func (k *Kernel) Happened(kind string, handle, event uint32) {
	k.Later(func() {
		for _, o := range k.driver.Kinds {
			if o.name == kind && o.there(handle) {
				k.Check(k.Async(k.UserHandle(handle), event))
			}
		}
	})
}

// NewRegister allocates a page with one register of four bytes, at an offset of the page. It returns the offset of the
// page in the file.
func (k *Kernel) NewRegister(at uint32, store func(uint32)) (key uint64) {
	return k.File.NewBell(func(offset uint32, b []byte) bool {
		if offset != at || len(b) != 4 {
			return false
		}
		store(binary.LittleEndian.Uint32(b))
		return true
	})
}

// FreeRing frees a ring, which may be a zero one.
func (k *Kernel) FreeRing(r devfile.Ring) { k.Check(k.File.FreeRing(r)) }
