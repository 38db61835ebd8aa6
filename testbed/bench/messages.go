package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/goverbs/goverbs/bench/results"
	"github.com/goverbs/goverbs/testbed/connectx"
	"github.com/goverbs/goverbs/testbed/vm"
)

// onMessages compares times of packages rdma and cm with those of the same work in C.
func (b *bench) onMessages(ctx context.Context) error {
	const place = results.Messages
	return b.inGuest(ctx, vm.Config{RXE: true, MemoryMB: 2048}, func(m *machine) error {
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
			}
		})
	})
}

// addressed gives the network device of a software ConnectX the address 10.9.0.1.
const addressed = "ip link set lo up; d=$(ls /sys/class/infiniband/mlx5_0/device/net); ip addr add 10.9.0.1/24 dev $d" +
	" && ip link set $d up && " + active

// messageCost counts the instructions of operations of packages rdma and cm, and of the same work in C.
func (b *bench) messageCost(ctx context.Context) error {
	const place = results.MessageInstructions
	return connectX(connectx.Ethernet, func(sockets []string) error {
		return b.inGuest(ctx, vm.Config{VFIOUser: sockets, Modules: []string{"mlx5_ib", "rdma_ucm"}, ICount: true,
			MemoryMB: 2048}, func(m *machine) error {
			if _, err := m.client.run(ctx, "timeout", "600", "sh", "-c", addressed); err != nil {
				return err
			}
			b.place(place, m,
				"a software ConnectX, both ends in one process of a guest of one CPU whose clock counts instructions")
			m.address = "10.9.0.1"
			return b.messagesOf(ctx, m, place, "ns", func(p programs) map[string][]string {
				return map[string][]string{
					results.Go: {p.ours, "-addr", m.address, "-rounds", "10"}, // cm's figures too
					results.C:  {p.inC, m.address, "cost", "10"},
				}
			})
		})
	})
}

// programs are bench/rdmacost, which uses the packages rdma and cm, and its counterpart.
type programs struct{ ours, inC string }

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
	all := commands(programs{ours[1], inC})
	for round := range b.rounds {
		found := map[string]map[string]float64{}
		var names []string
		for _, who := range order(round, results.Go, results.CM, results.C) {
			if all[who] == nil {
				continue
			}
			out, err := m.client.run(ctx, unlimited(all[who]...)...)
			if err != nil {
				return fmt.Errorf("round %d, %s: %w", round+1, who, err)
			}
			n, values, err := named(out)
			if err != nil {
				return err
			}
			if found[who] = values; who == results.Go {
				names = n
			}
		}
		split(found)
		if err := b.addMessages(place, unit, names, found); err != nil {
			return fmt.Errorf("round %d: %w", round+1, err)
		}
		b.logf("%s: round %d of %d", place, round+1, b.rounds)
	}
	return nil
}

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
// does to send it.
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
			found[results.C][plain] = found[results.C]["large"]
		}
	}
}

// addMessages adds the figures that all programs have, in the order of their names.
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
		added++
	}
	if added == 0 {
		return fmt.Errorf("%s: the programs have no figure in common: %v", place, found)
	}
	return nil
}
