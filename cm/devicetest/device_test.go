package devicetest

import (
	"errors"
	"net/netip"
	"os"
	"slices"
	"testing"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/internal/nldev"
	"github.com/goverbs/goverbs/internal/sim/rtnetlink"
	"github.com/goverbs/goverbs/uverbs"
	"golang.org/x/sys/unix"
)

// A device is an RDMA device that a test has created in addition to the guest's.
type device struct {
	name, netdev string
	ip           netip.Addr
}

// newDevice creates the n-th additional device, of the driver under test, which is removed when the test ends. No
// neighbors reply in its network.
func newDevice(t *testing.T, n int) device {
	t.Helper()
	if inMemory { // the only device
		return device{rdmaDevice(), netdev, netip.MustParseAddr(deviceIP)}
	}
	kind := "rxe"
	if rnic() {
		kind = "siw"
	}
	d := device{kind + itoa(n), "d" + itoa(n), netip.AddrFrom4([4]byte{10, 9, byte(n), 1})}
	if err := rtnetlink.AddDummy(d.netdev); err != nil && !errors.Is(err, unix.EEXIST) {
		t.Fatal(err)
	}
	if err := rtnetlink.AddAddress(d.netdev, netip.PrefixFrom(d.ip, 24)); err != nil && !errors.Is(err, unix.EEXIST) {
		t.Fatal(err)
	}
	needARP(t, d.netdev)
	check(t, nldev.AddLink(d.name, kind, d.netdev))
	t.Cleanup(func() {
		if _, err := nldev.Resources(d.name); err == nil { // unless the test has removed it
			check(t, nldev.DeleteLink(d.name))
		}
	})
	return d
}

// remove removes the device.
func (d device) remove() error {
	if inMemory {
		memory().RemoveDevice()
		return nil
	}
	return nldev.DeleteLink(d.name)
}

// needARP makes a dummy network interface resolve its neighbors.
func needARP(t *testing.T, name string) {
	t.Helper()
	fd := must(unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0))(t)
	defer unix.Close(fd)
	ifr := must(unix.NewIfreq(name))(t)
	check(t, unix.IoctlIfreq(fd, unix.SIOCGIFFLAGS, ifr))
	ifr.SetUint16(ifr.Uint16() &^ unix.IFF_NOARP)
	check(t, unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, ifr))
}

// find returns the device's entry in the list of uverbs.
func (d device) find(t *testing.T) uverbs.Device {
	t.Helper()
	all := must(uverbs.Devices())(t)
	k := slices.IndexFunc(all, func(u uverbs.Device) bool { return u.Name == d.name })
	if k < 0 {
		t.Fatalf("%s is not in %v", d.name, all)
	}
	return all[k]
}

// TestDeviceList checks Devices: "Callers can use this routine to allocate resources on specific RDMA devices that will
// be shared across multiple rdma_cm_id's" (rdma_get_devices(3)).
func TestDeviceList(t *testing.T) {
	begin(t)
	d := newDevice(t, 1)
	list := must(cm.Devices())(t)
	closing(t, list)
	names := map[string]*uverbs.Context{}
	for _, c := range list.Contexts() {
		names[c.Name()] = c
	}
	if len(names) != 2 || names[d.name] == nil || names[rdmaDevice()] == nil {
		t.Fatalf("the devices are %v", names)
	}
	l := listenAt(t, deviceIP+":0", nil)
	l1 := listenAt(t, netip.AddrPortFrom(d.ip, 0).String(), nil)
	if l.ID().Verbs() != names[rdmaDevice()] || l1.ID().Verbs() != names[d.name] {
		t.Error("ids do not share the devices of the list")
	}
	// Ids can use objects on the list's devices.
	pd := must(names[d.name].AllocPD())(t)
	closing(t, pd)
	client, server := connect(t, l1, &cm.Options{PD: pd})
	if client.PD() != pd || server.PD() == pd {
		t.Error("the PD is another")
	}
	carries(t, client.ID().ID, server.ID().ID, "over the other device")
	// A PD of another device than the connection's is an error.
	_, err := cm.Dial(limit(t), l.Addr().String(), &cm.Options{PD: pd})
	isError(t, err, []error{uverbs.ErrInvalid}, d.name, rdmaDevice())
	check(t, list.Close())
	check(t, list.Close())
	if len(list.Contexts()) != 0 {
		t.Error("the closed list has devices")
	}
	carries(t, server.ID().ID, client.ID().ID, "still")
}

// TestDeviceBrokenDevice checks that the other devices can still be used if one cannot be opened.
func TestDeviceBrokenDevice(t *testing.T) {
	begin(t)
	d := newDevice(t, 1)
	node := d.find(t).Node
	check(t, os.Rename(node, node+".away"))
	t.Cleanup(func() { check(t, os.Rename(node+".away", node)) })
	list, err := cm.Devices()
	isError(t, err, []error{uverbs.ErrNoNode}, d.name)
	if all := list.Contexts(); len(all) != 1 || all[0].Name() != rdmaDevice() {
		t.Errorf("the list has %d devices", len(all))
	}
	check(t, list.Close())
	host := ""
	if rnic() { // see TestDeviceAnyAddress
		host = deviceIP
	}
	l := listenAt(t, host+":0", nil)
	ctx := limit(t)
	accepted := async(func() (*cm.Conn, error) { return l.Accept(ctx) })
	c := must(cm.Dial(ctx, at(deviceIP, l.Addr().Port()).String(), nil))(t)
	closing(t, c)
	closing(t, accepted(t))

	_, err = cm.Listen(netip.AddrPortFrom(d.ip, 0).String(), nil)
	isError(t, err, []error{uverbs.ErrNoNode}, d.name)
	_, err = cm.Dial(ctx, netip.AddrPortFrom(d.ip, l.Addr().Port()).String(), nil)
	isError(t, err, []error{uverbs.ErrNoNode}, d.name)
}

// TestDeviceRemoval removes the device while ids use it, and checks that each reports this and that the device is
// closed with the last id.
func TestDeviceRemoval(t *testing.T) {
	begin(t)
	d := newDevice(t, 1)
	k := newTalk(t)
	l, to := k.listen(t, cm.PSTCP, netip.AddrPortFrom(d.ip, 0))
	client, child := k.connect(t, to)
	waiting := must(cm.NewID(cm.PSTCP))(t)
	closing(t, waiting)
	check(t, waiting.Bind(netip.AddrPortFrom(d.ip, 0)))
	check(t, waiting.Listen(0))
	accepted := async(func() (error, error) { return second(waiting.GetRequest(k.ctx)), nil })

	removed := async(func() (int, error) { return 0, d.remove() })
	told := map[*cm.ID]bool{}
	for len(told) < 3 {
		e := must(k.Next(k.ctx))(t)
		if e.Type == cm.EventDisconnected || e.Type == cm.EventTimewaitExit {
			continue // on some kernels the removal begins with this
		}
		if e.Type != cm.EventDeviceRemoval || told[e.ID] {
			t.Fatalf("%v of %p", e.Type, e.ID)
		}
		isError(t, e.Err(), []error{uverbs.ErrDeviceGone, unix.EIO}, "removed")
		told[e.ID] = true
	}
	isError(t, accepted(t), []error{uverbs.ErrDeviceGone})
	for _, i := range []interface{ Close() error }{client, child, l, waiting} {
		check(t, i.Close())
	}
	removed(t)
	_, err := cm.Listen(netip.AddrPortFrom(d.ip, 0).String(), nil)
	isError(t, err, []error{uverbs.ErrNoDevice})
}
