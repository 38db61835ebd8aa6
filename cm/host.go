package cm

import (
	"errors"
	"math/bits"
	"strconv"
	"sync"

	"github.com/goverbs/goverbs/uverbs"
)

// host holds what the ids of the process share: open devices, and the table
// that the kernel's events are looked up in.
var host struct {
	sync.Mutex
	devices map[deviceKey]*device

	table struct {
		sync.Mutex
		last  uint64
		byUID map[uint64]any // *ID or *Membership
	}
}

// enroll gives v the number under which the kernel reports events for it.
// Numbers are never used twice: a late event of a closed id finds nothing.
func enroll(v any) uint64 {
	t := &host.table
	t.Lock()
	defer t.Unlock()
	if t.byUID == nil {
		t.byUID = make(map[uint64]any)
	}
	t.last++
	t.byUID[t.last] = v
	return t.last
}

func lookup(uid uint64) any {
	t := &host.table
	t.Lock()
	defer t.Unlock()
	return t.byUID[uid]
}

func forget(uid uint64) {
	t := &host.table
	t.Lock()
	defer t.Unlock()
	delete(t.byUID, uid)
}

// A deviceKey is how the connection manager names a device. Kernels before
// 5.10 leave the index at -1.
type deviceKey struct {
	index int32
	guid  uverbs.GUID
}

// A device is an RDMA device that ids use: opened once, with one PD for all
// that bring none of their own.
type device struct {
	key  deviceKey
	ctx  *uverbs.Context
	pd   *uverbs.PD
	refs int // ids, and lists of Devices
	attr *uverbs.DeviceAttr
	rnic bool // iWARP
	// xrcd is the XRC domain of all ids that bring none of their own, if there are such.
	xrcd      *uverbs.XRCD
	xrcdUsers int
	// close closes the device if it is idle, and answers ErrBusy otherwise.
	close func() error
}

// keyOf makes a key of what the kernel tells: guid is big-endian.
func keyOf(guid uint64, index uint32) deviceKey {
	return deviceKey{index: int32(index), guid: uverbs.GUID(bits.ReverseBytes64(guid))}
}

// acquire returns the device, opened at its first use.
func acquire(key deviceKey) (*device, error) {
	host.Lock()
	defer host.Unlock()
	if d := host.devices[key]; d != nil {
		d.refs++
		return d, nil
	}
	d, err := openDevice(key)
	if err != nil {
		return nil, err
	}
	if host.devices == nil {
		host.devices = make(map[deviceKey]*device)
	}
	host.devices[key] = d
	d.refs = 1
	return d, nil
}

// openDevice opens a device, and listDevices finds them all. Hermetic tests put
// their own here.
var openDevice, listDevices = openKey, uverbs.Devices

func openKey(key deviceKey) (*device, error) {
	all, err := uverbs.Devices()
	if err != nil {
		return nil, err
	}
	for _, info := range all {
		if key.index >= 0 && info.Index >= 0 && info.Index != int(key.index) || info.NodeGUID != key.guid {
			continue
		}
		return openInfo(key, info)
	}
	return nil, &Error{Op: "open", Object: "device " + strconv.Itoa(int(key.index)), Kind: uverbs.ErrNoDevice,
		Detail: "the connection manager names a device that is not there: node GUID " + key.guid.String()}
}

func openInfo(key deviceKey, info uverbs.Device) (*device, error) {
	ctx, err := info.Open()
	if err != nil {
		return nil, err
	}
	attr, err := ctx.QueryDevice()
	if err != nil {
		return nil, errors.Join(err, ctx.Close())
	}
	pd, err := ctx.AllocPD()
	if err != nil {
		return nil, errors.Join(err, ctx.Close())
	}
	d := &device{key: key, ctx: ctx, pd: pd, attr: attr, rnic: info.NodeType == uverbs.NodeRNIC,
		close: func() error { return ctx.CloseIdle(pd) }}
	ctx.OnIdle(d.idle, pd)
	return d, nil
}

// release gives back what acquire gave. The device is closed with the last
// user, and when then objects live that the program has made on it, with the
// last of those.
func (d *device) release() error {
	host.Lock()
	defer host.Unlock()
	d.refs--
	return d.closeUnused()
}

// idle is called when the last of the program's objects has been closed.
func (d *device) idle() error {
	host.Lock()
	defer host.Unlock()
	return d.closeUnused()
}

// closeUnused closes the device if nobody uses it. The caller holds the host.
func (d *device) closeUnused() error {
	if d.refs > 0 || host.devices[d.key] != d {
		return nil
	}
	err := d.close()
	if errors.Is(err, uverbs.ErrBusy) {
		return nil
	}
	delete(host.devices, d.key)
	return err
}

// Devices opens all RDMA devices and keeps them open, with whatever ids use
// them: rdma_get_devices(3). A device that cannot be opened is left out; the
// error then says why, and the list still holds the others.
// [uverbs.ErrNoDevice] where the kernel has no RDMA at all; for a device the
// errors are those of [uverbs.Open].
func Devices() (*DeviceList, error) {
	all, err := listDevices()
	if err != nil {
		return nil, err
	}
	list := &DeviceList{}
	var errs []error
	for _, info := range all {
		d, err := acquire(deviceKey{index: int32(info.Index), guid: info.NodeGUID})
		if err != nil {
			errs = append(errs, err)
			continue
		}
		list.devices = append(list.devices, d)
	}
	return list, errors.Join(errs...)
}

// A DeviceList is a set of open devices.
type DeviceList struct {
	mu      sync.Mutex
	devices []*device
}

// Contexts returns the devices. They are those that ids have: see [ID.Verbs].
func (l *DeviceList) Contexts() []*uverbs.Context {
	l.mu.Lock()
	defer l.mu.Unlock()
	var all []*uverbs.Context
	for _, d := range l.devices {
		all = append(all, d.ctx)
	}
	return all
}

// Close lets the devices go: rdma_free_devices(3). It is idempotent. An error
// is what the kernel says; the device is let go all the same.
func (l *DeviceList) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	var errs []error
	for _, d := range l.devices {
		errs = append(errs, d.release())
	}
	l.devices = nil
	return errors.Join(errs...)
}
