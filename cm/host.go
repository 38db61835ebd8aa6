package cm

import (
	"errors"
	"math/bits"
	"strconv"
	"sync"

	"github.com/goverbs/goverbs/internal/verbs"
	"github.com/goverbs/goverbs/uverbs"
)

// host has what the ids of the process share: open devices, and the table that maps
// the uids of events to objects.
var host struct {
	sync.Mutex
	devices map[deviceKey]*device

	table struct {
		sync.Mutex
		last  uint64
		byUID map[uint64]any // *ID or *Membership
	}
}

// register adds v to the table and returns the uid that the kernel reports in its
// events. Uids are never reused, so that an event of a closed id is not taken for
// one of another id.
func register(v any) uint64 {
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

func unregister(uid uint64) {
	t := &host.table
	t.Lock()
	defer t.Unlock()
	delete(t.byUID, uid)
}

// A deviceKey identifies a device as the connection manager does. Kernels before 5.10 and
// sysfs report no index: it is -1.
type deviceKey struct {
	index int32
	guid  uverbs.GUID
}

// A device is an RDMA device that ids use. It is opened once, with one PD for all ids
// without their own.
type device struct {
	key  deviceKey
	ctx  *uverbs.Context
	pd   *uverbs.PD
	refs int // ids, and lists of Devices
	attr *uverbs.DeviceAttr
	rnic bool // iWARP
	// xrcd is the XRC domain of all ids without their own. It is nil if there are no
	// such ids, unless the program still has objects in the domain.
	xrcd      *uverbs.XRCD
	xrcdUsers int
}

// keyOf returns the key for the numbers that the kernel reports. guid is big-endian.
func keyOf(guid uint64, index uint32) deviceKey {
	return deviceKey{index: int32(index), guid: uverbs.GUID(bits.ReverseBytes64(guid))}
}

// openedDevice returns the device if it is open. A device without an index has only its
// GUID in common with one of another source. The caller holds host.
func openedDevice(key deviceKey) *device {
	if d := host.devices[key]; d != nil {
		return d
	}
	for k, d := range host.devices {
		if k.guid == key.guid && (k.index < 0 || key.index < 0) {
			return d
		}
	}
	return nil
}

// acquire returns the device. It opens the device for its first user.
func acquire(key deviceKey) (*device, error) {
	host.Lock()
	defer host.Unlock()
	if d := openedDevice(key); d != nil {
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

// openDevice opens a device and listDevices lists them. Hermetic tests replace both.
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
	d := &device{key: key, ctx: ctx, pd: pd, attr: attr, rnic: info.NodeType == uverbs.NodeRNIC}
	d.watchIdle()
	return d, nil
}

// ownObjects returns the objects on the device that are not the program's.
func (d *device) ownObjects() []any {
	if d.xrcd == nil {
		return []any{d.pd}
	}
	return []any{d.pd, d.xrcd}
}

// watchIdle calls onIdle when the last of the program's objects is closed. It must be
// called again when the result of ownObjects changes.
func (d *device) watchIdle() { verbs.OnIdle(d.ctx, d.onIdle, d.ownObjects()...) }

// release undoes acquire. It closes the device with its last user. If the program
// still has objects on the device, the device is closed with the last of those.
func (d *device) release() error {
	host.Lock()
	defer host.Unlock()
	d.refs--
	return d.closeUnused()
}

// onIdle is called when the last of the program's objects has been closed.
func (d *device) onIdle() error {
	host.Lock()
	defer host.Unlock()
	return d.closeUnused()
}

// closeUnused closes the device if it is not used. The caller holds host.
func (d *device) closeUnused() error {
	if d.refs > 0 || host.devices[d.key] != d {
		return nil
	}
	err := verbs.CloseIdle(d.ctx, d.ownObjects()...)
	if errors.Is(err, uverbs.ErrBusy) {
		return nil
	}
	delete(host.devices, d.key)
	return err
}

// Devices opens all RDMA devices and keeps them open, regardless of ids:
// rdma_get_devices(3). If some devices cannot be opened, it returns both the list of
// the others and an error. Devices returns [uverbs.ErrNoDevice] if the kernel has no
// RDMA support. For each device the errors are those of [uverbs.Open].
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

// Contexts returns the open devices. Ids use the same ones: see [ID.Verbs].
func (l *DeviceList) Contexts() []*uverbs.Context {
	l.mu.Lock()
	defer l.mu.Unlock()
	var all []*uverbs.Context
	for _, d := range l.devices {
		all = append(all, d.ctx)
	}
	return all
}

// Close releases the devices: rdma_free_devices(3). It is idempotent. An error is
// what the kernel says. The devices are released anyway.
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
