package vfiouser

// Removable is a device that can be pulled out of its machine without the
// machine being asked, and put back: a surprise removal. While it is out, reads
// give ones, as of a slot without a device, stores go nowhere, and the device has
// no host. A guest that finds out lets its driver go, and finds the device again
// when it looks at the bus anew (/sys/bus/pci/devices/…/remove, /sys/bus/pci/rescan).
//
// That is all that QEMU leaves of re-insertion: up to 11.1 at least it aborts
// when a vfio-user-pci with MSI-X is taken out by device_del.
//
// Its methods are for the inside of Server.Run.
type Removable struct {
	Device
	host *Host // of the machine that it is in, or was pulled from
	out  bool
}

// Pull takes the device out. The device is told that its machine has gone.
func (r *Removable) Pull() {
	if r.out {
		return
	}
	r.out = true
	if r.host != nil {
		r.Device.Disconnect()
	}
}

// Plug puts the device back, as after a reset.
func (r *Removable) Plug() {
	if !r.out {
		return
	}
	r.out = false
	r.Device.Reset()
	if r.host != nil {
		r.Device.Connect(r.host)
	}
}

// Out tells whether the device is out.
func (r *Removable) Out() bool { return r.out }

// Connect is Device.Connect.
func (r *Removable) Connect(h *Host) {
	r.host = h
	if !r.out {
		r.Device.Connect(h)
	}
}

// Disconnect is Device.Disconnect.
func (r *Removable) Disconnect() {
	r.host = nil
	if !r.out {
		r.Device.Disconnect()
	}
}

// Read is Device.Read.
func (r *Removable) Read(region int, offset uint64, p []byte) error {
	if !r.out {
		return r.Device.Read(region, offset, p)
	}
	for i := range p {
		p[i] = 0xff
	}
	return nil
}

// Write is Device.Write.
func (r *Removable) Write(region int, offset uint64, p []byte) error {
	if r.out {
		return nil
	}
	return r.Device.Write(region, offset, p)
}

// Reset is Device.Reset.
func (r *Removable) Reset() {
	if !r.out {
		r.Device.Reset()
	}
}
