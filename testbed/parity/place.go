package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/goverbs/goverbs/testbed/connectx"
	"github.com/goverbs/goverbs/testbed/connectx/world"
	"github.com/goverbs/goverbs/testbed/vm"
	"github.com/goverbs/goverbs/testbed/vm/bed"
)

// A place is a device and a kernel on which tests run.
type place struct{ device, kernel string }

// devices and kernels lists those of the page, in its order.
var (
	devices = []string{rxe, roce, ib}
	kernels = []string{"6.1", "6.12", "7.2"}
)

// The devices: the kernel's soft-RoCE, and the software ConnectX on either link
// layer.
const (
	rxe  = "rxe"
	roce = "mlx5 RoCE"
	ib   = "mlx5 IB"
)

func (p place) String() string { return p.device + " " + p.kernel }

// on returns the places of a device.
func on(device string) (all []place) {
	for _, k := range kernels {
		all = append(all, place{device, k})
	}
	return all
}

// everywhere returns all places.
func everywhere() (all []place) {
	for _, d := range devices {
		all = append(all, on(d)...)
	}
	return all
}

// choose returns the places of a comma-separated list, or all places if the list is
// empty.
func choose(list string) (chosen []place, err error) {
	if list == "" {
		return everywhere(), nil
	}
	for name := range strings.SplitSeq(list, ",") {
		all := everywhere()
		i := slices.IndexFunc(all, func(p place) bool { return p.String() == strings.TrimSpace(name) })
		if i < 0 {
			return nil, fmt.Errorf("unknown place %q: the places are %v", name, all)
		}
		chosen = append(chosen, all[i])
	}
	return chosen, nil
}

// name returns the device's name in a guest.
func (p place) name() string {
	if p.device == rxe {
		return "rxe0"
	}
	return "mlx5_0"
}

// pyverbsArgs returns the options that select the device and the RoCE v2 GID of its
// IPv4 address.
func (p place) pyverbsArgs() []string {
	args := []string{"--dev", p.name()}
	switch p.device {
	case rxe:
		args = append(args, "--gid", "1")
	case roce:
		args = append(args, "--port", "1", "--gid", "3")
	case ib:
		args = append(args, "--port", "1")
	}
	return args
}

// boot starts a guest with the device, which has memory on demand on each kernel if demand is set. end stops both and
// returns the errors that the ConnectX reported.
func (p place) boot(ctx context.Context, demand bool) (g *vm.Guest, end func() error, err error) {
	config := vm.Config{Kernel: p.kernel, Root: true, RXE: p.device == rxe}
	end = func() error { return nil }
	if p.device != rxe {
		var sockets []string
		if sockets, end, err = p.plug(demand); err != nil {
			return nil, nil, err
		}
		config.VFIOUser, config.Modules = sockets, []string{"mlx5_ib", "ib_umad", "rdma_ucm", "rdma_rxe"}
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, end())
		}
	}()
	parts, err := config.Parts()
	if err != nil {
		return nil, nil, err
	}
	b, err := bed.Ensure(ctx, os.Stderr, parts...)
	if err != nil {
		return nil, nil, err
	}
	if g, err = vm.Boot(ctx, b, config); err != nil {
		return nil, nil, err
	}
	rest := end
	end = func() error { return errors.Join(g.Close(), rest()) }
	return g, end, p.prepare(ctx, g)
}

// plug starts a ConnectX for a guest.
func (p place) plug(demand bool) (sockets []string, end func() error, err error) {
	dir, err := os.MkdirTemp("", "parity")
	if err != nil {
		return nil, nil, err
	}
	layer := connectx.Ethernet
	if p.device == ib {
		layer = connectx.InfiniBand
	}
	adapt := world.OnDemand(p.kernel)
	if demand {
		adapt = world.AlwaysOnDemand
	}
	var wrong []error // only the world's goroutine appends to it until Close
	w, err := world.Start(world.Config{Dir: dir, Devices: 1, LinkLayer: layer, Adapt: adapt,
		Report: func(err error) { wrong = append(wrong, err) }})
	if err != nil {
		return nil, nil, errors.Join(err, os.RemoveAll(dir))
	}
	return w.Sockets(), func() error {
		err := w.Close()
		return errors.Join(append(wrong, err, os.RemoveAll(dir))...)
	}, nil
}

// prepare renames the network device of the ConnectX to that of rxe, assigns its
// address, and waits for its port.
func (p place) prepare(ctx context.Context, g *vm.Guest) error {
	script := ""
	switch p.device {
	case rxe:
		return nil
	case roce:
		script = "ip link set $(ls /sys/class/infiniband/mlx5_0/device/net) name d0; ip addr add 10.9.0.1/24 dev d0;" +
			" ip link set d0 up\n"
	}
	// The kernel does not send from an address before duplicate address detection.
	script += `ip link set lo up
for i in $(seq 100); do
	grep -q ACTIVE /sys/class/infiniband/mlx5_0/ports/1/state && test -z "$(ip -6 addr show tentative)" && exit 0
	sleep 0.1
done
exit 1`
	out, err := g.CommandContext(ctx, "sh", "-e", "-c", script).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%v: the port does not come up: %w\n%s", p, err, out)
	}
	return nil
}
