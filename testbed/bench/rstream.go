package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/goverbs/goverbs/bench/results"
	"github.com/goverbs/goverbs/testbed/vm"
)

// A stream is a test of rstream: how many transfers of each side take turns, and whether calls sleep.
type stream struct {
	name            string
	at, transfers   int
	iterations      int
	sleeps          bool
	onlySeveralCPUs bool // two programs that poll would wait for each other's time slices on one
}

func streams(messages int) (all []stream) {
	for _, size := range []int{64, 4096, 65536} {
		n := messages
		if size > 4096 {
			n = max(messages/4, 1)
		}
		for _, sleeps := range []bool{true, false} {
			name := ", polling"
			if sleeps {
				name = ", sleeping"
			}
			all = append(all, stream{"one at a time" + name, size, 1, n, sleeps, !sleeps},
				stream{"many at a time" + name, size, n, 3, sleeps, !sleeps})
		}
	}
	return all
}

// onRsocket compares rstream in Go with that in C, and with C's over TCP.
func (b *bench) onRsocket(ctx context.Context) error {
	return b.inGuest(ctx, vm.Config{RXE: true, MemoryMB: 2048}, func(m *machine) error {
		m.address = "10.9.0.1"
		b.place(results.Rsocket, m, "rstream on soft-RoCE, both ends in one guest of 2 CPUs; TCP over the loopback device")
		return b.rstreams(ctx, m, results.Rsocket, false)
	})
}

// rsocketTwo does the same between two devices.
func (b *bench) rsocketTwo(ctx context.Context) error {
	return b.inGuest(ctx, vm.Config{RXE: true, MemoryMB: 2048}, func(m *machine) error {
		if _, err := m.client.run(ctx, "sh", "-c", twoDevices); err != nil {
			return err
		}
		m.address, m.from = "10.9.1.2", "10.9.1.1"
		b.place(results.RsocketTwo, m,
			"rstream between two soft-RoCE devices, on the ends of a veth pair of MTU 4200 in one guest of 2 CPUs")
		return b.rstreams(ctx, m, results.RsocketTwo, false)
	})
}

// twoDevices creates two soft-RoCE devices on the ends of a veth pair. rxe's socket exists in the initial network
// namespace only, so both ends are in it, and both addresses are local. The rules come before that for local addresses:
// packets leave through the device of their source address, and arriving packets are local. rdma_cm uses the routes by
// source address too, when it checks through which device a request has arrived.
const twoDevices = `set -e
ip link add va type veth peer name vb
connect() { # a device, its address, that of the other device, a routing table
	ip link set $1 mtu 4200 up
	ip addr add $2/32 dev $1
	echo 1 >/proc/sys/net/ipv4/conf/$1/accept_local
	echo 0 >/proc/sys/net/ipv4/conf/$1/rp_filter
	ip route add $3/32 dev $1 table $4
	ip rule add pref 10 iif $1 to $2 lookup local
	ip rule add pref 20 from $2 to $3 lookup $4
	rdma link add rx$1 type rxe netdev $1
}
connect va 10.9.1.1 10.9.1.2 101
connect vb 10.9.1.2 10.9.1.1 102
echo 0 >/proc/sys/net/ipv4/conf/all/rp_filter
ip rule add pref 30 lookup local
ip rule del pref 0
`

// rsocketCost does the same in a guest whose clock counts instructions.
func (b *bench) rsocketCost(ctx context.Context) error {
	return b.inGuest(ctx, vm.Config{RXE: true, MemoryMB: 2048, ICount: true}, func(m *machine) error {
		m.address = "10.9.0.1"
		b.place(results.RsocketInstructions, m,
			"rstream on soft-RoCE in a guest of one CPU whose clock counts instructions; TCP over the loopback device")
		return b.rstreams(ctx, m, results.RsocketInstructions, true)
	})
}

func (b *bench) rstreams(ctx context.Context, m *machine, place string, oneCPU bool) error {
	ours, err := m.program(ctx, "cmd/rstream")
	if err != nil {
		return err
	}
	for _, s := range streams(b.messages) {
		if oneCPU && s.onlySeveralCPUs {
			continue
		}
		err := b.inTurn(place, results.RsocketTest, "us", func(who string) ([]value, error) {
			v, err := m.rstream(ctx, who, ours, s)
			if err != nil || who != results.C {
				return v, err
			}
			tcp, err := m.rstream(ctx, results.TCP, ours, s) // in the same round
			if err == nil {
				b.run.Add(results.Series{Place: place, Test: results.RsocketTest, Figure: s.name, At: s.at, Unit: "us"},
					results.TCP, tcp[0].v)
			}
			return v, err
		})
		b.fail(place, fmt.Sprintf("%s, %d", s.name, s.at), err)
	}
	return nil
}

// rstream runs a server and a client, and returns the time of a transfer.
func (m *machine) rstream(ctx context.Context, who string, ours [2]string, s stream) ([]value, error) {
	server, client := "rstream", "rstream"
	port := m.next()
	args := fmt.Sprintf(" -p %d -S %d -C %d -I %d", port, s.at, s.transfers, s.iterations)
	if s.sleeps {
		args += " -T b"
	}
	bind := ""
	if m.from != "" {
		bind = " -b " + m.from
	}
	listening := fmt.Sprintf(cmListening, port)
	switch who {
	case results.Go:
		server, client = ours[0], ours[1]
	case results.TCP:
		args += " -T s"
		listening = fmt.Sprintf(tcpListening, port)
	}
	// A clock that counts instructions leaps while the guest waits, so the timeouts are long.
	out, err := m.pair(ctx, []string{"sh", "-c", "timeout 3000 " + server + " -b " + m.address + args},
		[]string{"sh", "-c", listening},
		[]string{"sh", "-c", "timeout 3000 " + client + " -s " + m.address + bind + args})
	if err != nil {
		return nil, err
	}
	fields := strings.Fields(out)
	if len(fields) == 0 {
		return nil, errors.New("rstream printed nothing")
	}
	us, err := strconv.ParseFloat(fields[len(fields)-1], 64)
	if err != nil {
		return nil, fmt.Errorf("rstream printed %q: %w", out, err)
	}
	return []value{{s.name, s.at, us}}, nil
}
