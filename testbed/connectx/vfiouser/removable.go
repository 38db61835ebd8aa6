package vfiouser

// Removable is a device that supports surprise removal and reinsertion. While
// it is removed, reads return ones, as of an empty slot, stores are ignored,
// and the device has no host. A guest that notices removes its driver, and
// finds the device again when it rescans the bus
// (/sys/bus/pci/devices/…/remove, /sys/bus/pci/rescan).
//
// Reinsertion by QEMU is not possible: up to at least 11.1 it aborts when a
// vfio-user-pci with MSI-X is removed by device_del.
//
// Its methods must be called inside of Server.Run.
type Removable struct {
	Device
	host *Host // of the machine that it is or was connected to
	out  bool
}

// Pull removes the device, and calls its Disconnect.
func (r *Removable) Pull() {
	if r.out {
		return
	}
	r.out = true
	if r.host != nil {
		r.Device.Disconnect()
	}
}

// Plug inserts the device again, and resets it.
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

// Out reports whether the device is removed.
func (r *Removable) Out() bool { return r.out }

// Connect implements Device.
func (r *Removable) Connect(h *Host) {
	r.host = h
	if !r.out {
		r.Device.Connect(h)
	}
}

// Disconnect implements Device.
func (r *Removable) Disconnect() {
	r.host = nil
	if !r.out {
		r.Device.Disconnect()
	}
}

// Read implements Device.
func (r *Removable) Read(region int, offset uint64, p []byte) error {
	if !r.out {
		return r.Device.Read(region, offset, p)
	}
	for i := range p {
		p[i] = 0xff
	}
	return nil
}

// Write implements Device.
func (r *Removable) Write(region int, offset uint64, p []byte) error {
	if r.out {
		return nil
	}
	return r.Device.Write(region, offset, p)
}

// Reset implements Device.
func (r *Removable) Reset() {
	if !r.out {
		r.Device.Reset()
	}
}
