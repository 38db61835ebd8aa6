package devicetest

import (
	"context"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/uverbs"
	"golang.org/x/sys/unix"
)

// TestDeviceSync runs all steps with ids without a channel.
func TestDeviceSync(t *testing.T) {
	begin(t)
	needV6(t)
	for name, ip := range map[string]string{"IPv4": deviceIP, "IPv6": deviceV6} {
		t.Run(name, func(t *testing.T) { stepByStep(t, ip) })
	}
}

func stepByStep(t *testing.T, ip string) {
	ctx := limit(t)
	l := must(cm.NewID(cm.PSTCP))(t)
	closing(t, l)
	check(t, l.Bind(at(ip, 0)))
	check(t, l.Listen(1))
	accepted := async(func() (*cm.SyncID, error) {
		child, err := l.GetRequest(ctx)
		if err != nil {
			return nil, err
		}
		if err := child.CreateQP(nil, small()); err != nil {
			return child, err
		}
		return child, child.Accept(ctx, &cm.ConnParam{PrivateData: []byte("yes")})
	})
	c := must(cm.NewID(cm.PSTCP))(t)
	closing(t, c)
	if c.Event() != nil {
		t.Error("a new id has an event")
	}
	check(t, c.ResolveAddr(ctx, netip.AddrPort{}, l.LocalAddr(), time.Second))
	if e := c.Event(); e.Type != cm.EventAddrResolved || e.ID != c.ID {
		t.Errorf("event %v", e.Type)
	}
	check(t, c.CreateQP(nil, small()))
	check(t, c.ResolveRoute(ctx, time.Second))
	check(t, c.Connect(ctx, &cm.ConnParam{PrivateData: []byte("may I?")}))
	if e := c.Event(); e.Type != cm.EventEstablished || string(e.PrivateData[:3]) != "yes" {
		t.Errorf("event %v with %.3q", e.Type, e.PrivateData)
	}
	child := accepted(t)
	closing(t, child)
	if e := child.Event(); e.Type != cm.EventEstablished {
		t.Errorf("the last event of the child is %v", e.Type)
	}
	carries(t, c.ID, child.ID, "one way")
	carries(t, child.ID, c.ID, "and the other")
	ended := async(func() (int, error) {
		<-child.Disconnected()
		return 0, child.Disconnect(ctx)
	})
	check(t, c.Disconnect(ctx))
	ended(t)
	check(t, c.Disconnect(ctx))
}

// TestDeviceDisconnectBusyPeer checks that Shutdown returns long before the kernel's timeout of a minute, even if the
// peer's program does nothing.
func TestDeviceDisconnectBusyPeer(t *testing.T) {
	begin(t)
	client, server := connect(t, listenAt(t, deviceIP+":0", nil), nil)
	ctx, cancel := context.WithTimeout(limit(t), 20*time.Second)
	defer cancel()
	if err := client.Shutdown(ctx); err != nil {
		t.Errorf("the library of the peer does not reply: %v", err)
	}
	<-server.Disconnected()
}

// TestDeviceCreateEP checks both kinds of endpoints: "After calling rdma_create_ep, the returned rdma_cm_id may be
// connected by calling rdma_connect", and "the rdma_cm_id associated with the new connection will automatically be
// associated with a QP" (rdma_create_ep(3)).
func TestDeviceCreateEP(t *testing.T) {
	begin(t)
	ctx := limit(t)
	cfg := small()
	passive := must(cm.GetAddrInfo(ctx, deviceIP, "", &cm.AddrInfo{Flags: cm.Passive}))(t)
	l := must(cm.CreateEP(ctx, &passive[0], nil, &cfg))(t)
	closing(t, l)
	check(t, l.Listen(0))
	accepted := async(func() (*cm.SyncID, error) {
		child, err := l.GetRequest(ctx)
		if err != nil {
			return nil, err
		}
		if got := child.Event().PrivateData; string(got[:11]) != "first, then" {
			t.Errorf("private data %.11q", got)
		}
		return child, child.Accept(ctx, nil)
	})
	active := must(cm.GetAddrInfo(ctx, deviceIP, itoa(int(l.LocalAddr().Port())), nil))(t)
	// "ai_connect data must be transferred as private data, with any user
	// supplied private data following it" (rdma_getaddrinfo(3)).
	active[0].Connect = []byte("first, ")
	c := must(cm.CreateEP(ctx, &active[0], nil, &cfg))(t)
	closing(t, c)
	check(t, c.Connect(ctx, &cm.ConnParam{PrivateData: []byte("then")}))
	child := accepted(t)
	closing(t, child)
	carries(t, c.ID, child.ID, "by endpoints")

	// Known paths replace route resolution.
	again := active[0]
	again.Paths = must(c.Paths())(t)
	accepted = async(func() (*cm.SyncID, error) {
		child, err := l.GetRequest(ctx)
		if err != nil {
			return nil, err
		}
		return child, child.Accept(ctx, nil)
	})
	c2 := must(cm.CreateEP(ctx, &again, nil, &cfg))(t)
	closing(t, c2)
	check(t, c2.Connect(ctx, nil))
	child2 := accepted(t)
	closing(t, child2)
	carries(t, c2.ID, child2.ID, "by a known path")
}

// hosts adds names to the machine until the test ends.
func hosts(t *testing.T, lines ...string) {
	t.Helper()
	file := t.TempDir() + "/hosts"
	check(t, os.WriteFile(file, []byte(strings.Join(lines, "\n")+"\n"), 0o644))
	if _, err := os.Stat("/etc/hosts"); err != nil {
		check(t, os.MkdirAll("/etc", 0o755))
		check(t, os.WriteFile("/etc/hosts", nil, 0o644))
	}
	check(t, unix.Mount(file, "/etc/hosts", "", unix.MS_BIND, ""))
	t.Cleanup(func() { check(t, unix.Unmount("/etc/hosts", 0)) })
	name := strings.Fields(lines[len(lines)-1])[1]
	eventually(t, "the name "+name, func() bool { // Go's resolver caches the file for some seconds
		_, err := net.DefaultResolver.LookupHost(t.Context(), name)
		return err == nil
	})
}

// TestDeviceHostNames dials by name, and checks that Dial connects to the first address of a name that accepts.
func TestDeviceHostNames(t *testing.T) {
	begin(t)
	ctx := limit(t)
	hosts(t, "127.0.0.1 localhost", deviceIP+" rnode", "127.0.0.1 twofold", deviceIP+" twofold")
	l := listenAt(t, "rnode:0", nil)
	if l.Addr().Addr() != netip.MustParseAddr(deviceIP) {
		t.Errorf("listening at %v", l.Addr())
	}
	port := itoa(int(l.Addr().Port()))
	for _, name := range []string{"rnode", "twofold"} {
		accepted := async(func() (*cm.Conn, error) { return l.Accept(ctx) })
		c := must(cm.Dial(ctx, name+":"+port, nil))(t)
		closing(t, c)
		s := accepted(t)
		closing(t, s)
		if c.RemoteAddr() != l.Addr() {
			t.Errorf("%s: connected to %v", name, c.RemoteAddr())
		}
	}
	// The loopback interface has no RDMA device.
	_, err := cm.Dial(ctx, "localhost:"+port, nil)
	isError(t, err, []error{uverbs.ErrNoDevice}, "127.0.0.1:"+port, "rdma link")
	_, err = cm.Dial(ctx, "nowhere.invalid:"+port, nil)
	isError(t, err, []error{cm.ErrUnreachable}, "nowhere.invalid")
	_, err = cm.Dial(ctx, deviceIP, nil)
	isError(t, err, []error{uverbs.ErrInvalid}, "host:port")
	_, err = cm.Dial(ctx, deviceIP+":nosuchservice", nil)
	isError(t, err, []error{uverbs.ErrInvalid}, "nosuchservice")
}
