package verbstest_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/goverbs/goverbs/rdma"
	"github.com/goverbs/goverbs/uverbs"
	"github.com/goverbs/goverbs/verbstest"
)

// TestDevices has machines with two devices each: connections use those of their addresses, and one that is removed
// leaves the other.
func TestDevices(t *testing.T) {
	for name, options := range map[string][]verbstest.Option{"Ethernet": nil, "InfiniBand": {verbstest.InfiniBand()}} {
		t.Run(name, func(t *testing.T) { testDevices(t, options) })
	}
}

func testDevices(t *testing.T, options []verbstest.Option) {
	net := verbstest.NewNetwork(t, options...)
	server, client := net.Machine(), net.Machine()
	server2, client2 := server.AddDevice(), client.AddDevice()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	serving, stop := context.WithCancel(ctx)
	served := make(chan error, 1)
	server.Run(func() {
		l := must(rdma.Listen(":7471", &rdma.ListenOptions{Options: rdma.Options{Linger: -1}}))(t)
		go func() {
			served <- l.Serve(serving, func(ctx context.Context, c *rdma.Conn) error {
				return c.ServeCalls(ctx, func([]byte) []byte { return []byte(c.CM().Verbs().Name()) })
			})
		}()
	})
	client.Run(func() {
		if all := must(uverbs.Devices())(t); len(all) != 2 || all[0].Name != "mlx5_0" || all[1].Name != "mlx5_1" {
			t.Errorf("the devices are %+v", all)
		}
		var last *rdma.Conn
		for _, from := range []*verbstest.Machine{client, client2} {
			for _, to := range []*verbstest.Machine{server, server2} {
				c := must(rdma.Dial(ctx, to.AddrPort(7471).String(), &rdma.Options{LocalAddr: from.AddrPort(0)}))(t)
				if here := c.CM().Verbs().Name(); here != from.Device() {
					t.Errorf("from %v: the device is %s, not %s", from.Addr(), here, from.Device())
				}
				m := must(c.Call(ctx, nil))(t)
				if there := string(m.Copy()); there != to.Device() {
					t.Errorf("to %v: the device is %s, not %s", to.Addr(), there, to.Device())
				}
				if last = c; to == server {
					check(t, c.Close())
				} else {
					defer c.Close()
				}
			}
		}
		client2.RemoveDevice()
		if _, err := last.Call(ctx, nil); !errors.Is(err, uverbs.ErrDeviceGone) {
			t.Errorf("the error is %v, not ErrDeviceGone", err)
		}
		c := must(rdma.Dial(ctx, server2.AddrPort(7471).String(), nil))(t)
		must(c.Call(ctx, nil))(t).Release()
		check(t, c.Close())
		_, err := rdma.Dial(ctx, server.AddrPort(7471).String(), &rdma.Options{LocalAddr: client2.AddrPort(0)})
		if !errors.Is(err, uverbs.ErrNoDevice) {
			t.Errorf("from a removed device: %v, not ErrNoDevice", err)
		}
	})
	stop()
	check(t, <-served)
}

// TestAddDeviceRace adds devices to a machine at the same time: each has its own name.
func TestAddDeviceRace(t *testing.T) {
	m := verbstest.NewNetwork(t).Machine()
	const n = 8
	names := make(chan string, n)
	var all sync.WaitGroup
	for range n {
		all.Go(func() { names <- m.AddDevice().Device() })
	}
	all.Wait()
	close(names)
	found := map[string]bool{m.Device(): true}
	for name := range names {
		found[name] = true
	}
	m.Run(func() {
		devices := must(uverbs.Devices())(t)
		for _, d := range devices {
			delete(found, d.Name)
		}
		if len(devices) != n+1 || len(found) > 0 {
			t.Errorf("%d devices, which do not have the names %v", len(devices), found)
		}
	})
}
