package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/goverbs/goverbs/bench/results"
	"github.com/goverbs/goverbs/testbed/connectx"
	"github.com/goverbs/goverbs/testbed/vm"
)

// onMessages compares times of packages rdma and cm with those of the same work in C.
func (b *bench) onMessages(ctx context.Context) error {
	const place = results.Messages
	return b.inGuest(ctx, vm.Config{RXE: true, Fabric: true, MemoryMB: 2048}, func(m *machine) error {
		b.place(place, m, "soft-RoCE, both ends in one process of a guest of 2 CPUs")
		m.address = "10.9.0.1"
		if _, err := m.client.run(ctx, "ip", "link", "set", "d0", "mtu", "4200"); err != nil {
			return err
		}
		return b.messagesOf(ctx, m, place, "us", func(p programs) map[string][]string {
			// A thousandth of the times is a figure, so there are several thousand.
			n := strconv.Itoa(5 * b.messages)
			return map[string][]string{
				results.Go: {p.ours, "-addr", m.address, "-level", "rdma", "-tail", n},
				results.CM: {p.ours, "-addr", m.address, "-level", "cm", "-tail", n},
				results.C:  {p.inC, m.address, "tail", n},

				results.Cgo: {p.cgo, "-addr", m.address, "-tail", n},
				results.TCP: {p.ours, "-addr", m.address, "-level", "tcp", "-tail", n},

				results.Fabric:    {p.fabric, m.address, "tail", n},
				results.FabricRDM: {p.fabric, m.address, "tail", n, "rdm"},
			}
		})
	})
}

// addressed gives the network device of a software ConnectX the address 10.9.0.1.
const addressed = "ip link set lo up; d=$(ls /sys/class/infiniband/mlx5_0/device/net); ip addr add 10.9.0.1/24 dev $d" +
	" && ip link set $d up && " + active

// costRounds is the number of rounds of which the programs print the median. How often a wait polls before it sleeps
// varies, and the cost with it.
const costRounds = "25"

// messageCost counts the instructions of operations of packages rdma and cm, and of the same work in C.
func (b *bench) messageCost(ctx context.Context) error {
	const place = results.MessageInstructions
	return connectX(connectx.Ethernet, func(sockets []string) error {
		return b.inGuest(ctx, vm.Config{VFIOUser: sockets, Modules: []string{"mlx5_ib", "rdma_ucm"}, ICount: true,
			Fabric: true, MemoryMB: 2048}, func(m *machine) error {
			if _, err := m.client.run(ctx, "timeout", "600", "sh", "-c", addressed); err != nil {
				return err
			}
			b.place(place, m,
				"a software ConnectX, both ends in one process of a guest of one CPU whose clock counts instructions")
			m.address = "10.9.0.1"
			return b.messagesOf(ctx, m, place, "ns", func(p programs) map[string][]string {
				return map[string][]string{
					results.Go: {p.ours, "-addr", m.address, "-rounds", costRounds}, // cm's figures too
					results.C:  {p.inC, m.address, "cost", costRounds},

					results.Cgo: {p.cgo, "-addr", m.address, "-rounds", costRounds},
					results.TCP: {p.ours, "-addr", m.address, "-level", "tcp", "-rounds", costRounds},

					results.Fabric:    {p.fabric, m.address, "cost", costRounds},
					results.FabricRDM: {p.fabric, m.address, "cost", costRounds, "rdm"},
				}
			})
		})
	})
}

// programs are bench/rdmacost, which uses the packages rdma, cm and net, and its counterparts in C on librdmacm and on
// libfabric, and on librdmacm through cgo, which may be "".
type programs struct{ ours, inC, fabric, cgo string }

// messagesOf runs commands in turn, in an order that changes.
func (b *bench) messagesOf(ctx context.Context, m *machine, place, unit string,
	commands func(programs) map[string][]string) error {
	ours, err := m.program(ctx, "bench/rdmacost")
	if err != nil {
		return err
	}
	inC, compiler, err := m.client.compile(ctx, source("messages.c"))
	if err != nil {
		return err
	}
	b.run.C = compiler
	onFabric, _, err := m.client.compile(ctx, source("fabric.c"), libfabric)
	if err != nil {
		return err
	}
	onCgo, err := b.cgo(ctx, m, "./messages")
	if err != nil {
		return err
	}
	all := commands(programs{ours[1], inC, onFabric, onCgo})
	if c := all[results.Cgo]; len(c) > 0 && c[0] == "" {
		delete(all, results.Cgo)
	}
	for round := range b.rounds {
		names, found, err := b.messageRound(ctx, m, place, round, all)
		if err != nil {
			return fmt.Errorf("round %d, %w", round+1, err)
		}
		split(found)
		if err := b.addMessages(place, unit, names, found); err != nil {
			return fmt.Errorf("round %d: %w", round+1, err)
		}
		b.logf("%s: round %d of %d", place, round+1, b.rounds)
	}
	return nil
}

// messageRound runs each command once. It returns the names of the figures of rdma, and the figures of each program.
// Programs of others that fail are removed from the commands: the rest is compared without them.
func (b *bench) messageRound(ctx context.Context, m *machine, place string, round int,
	commands map[string][]string) (names []string, found map[string]map[string]float64, err error) {
	found = map[string]map[string]float64{}
	for _, who := range order(round, append([]string{results.Go, results.CM, results.C}, others...)...) {
		if commands[who] == nil {
			continue
		}
		out, err := m.client.run(ctx, unlimited(commands[who]...)...)
		var n []string
		if err == nil {
			n, found[who], err = named(out)
		}
		switch {
		case err != nil && slices.Contains(others, who):
			b.fail(place, fmt.Sprintf("%s, round %d", who, round+1), err)
			delete(commands, who)
			delete(found, who)
		case err != nil:
			return nil, nil, fmt.Errorf("%s: %w", who, err)
		case who == results.Go:
			names = n
		}
	}
	return names, found, nil
}

// others are what a Go program might use instead, beside C on librdmacm.
var others = []string{results.Cgo, results.TCP, results.Fabric, results.FabricRDM}

// order returns the programs, beginning with another one in each round.
func order(round int, who ...string) []string {
	first := round % len(who)
	return append(append([]string{}, who[first:]...), who[:first]...)
}

// The ends of the names of figures if a program measures both packages.
const (
	ofRDMA = "_rdma"
	ofCM   = "_cm"
)

// split moves the figures of cm that are with those of rdma. A message of 1 MiB is one in C, whatever package rdma
// does to send it. A program that did not run has none.
func split(found map[string]map[string]float64) {
	for name, v := range found[results.Go] {
		plain, ok := strings.CutSuffix(name, ofRDMA)
		if !ok {
			continue
		}
		if found[results.CM] == nil {
			found[results.CM] = map[string]float64{}
		}
		found[results.Go][plain] = v
		found[results.CM][plain] = found[results.Go][plain+ofCM]
		if plain == "offered" {
			for _, who := range append([]string{results.C}, others...) {
				if large, ok := found[who]["large"]; ok {
					found[who][plain] = large
				}
			}
		}
	}
}

// addMessages adds the figures that the programs with rdma, cm and librdmacm have, in the order of their names, and
// those of others beside them.
func (b *bench) addMessages(place, unit string, names []string, found map[string]map[string]float64) error {
	added := 0
	for _, name := range names {
		name = strings.TrimSuffix(name, ofRDMA)
		goes, hasGo := found[results.Go][name]
		c, hasC := found[results.C][name]
		cm, hasCM := found[results.CM][name]
		if !hasGo || !hasC || !hasCM {
			continue // of one program, such as the number of garbage collections
		}
		key := results.Series{Place: place, Test: results.MessagesTest, Figure: name, At: 64, Unit: unit}
		b.run.Add(key, results.Go, goes)
		b.run.Add(key, results.CM, cm)
		b.run.Add(key, results.C, c)
		for _, who := range others {
			if v, ok := found[who][name]; ok {
				b.run.Add(key, who, v)
			}
		}
		added++
	}
	if added == 0 {
		return fmt.Errorf("%s: the programs have no figure in common: %v", place, found)
	}
	return nil
}
