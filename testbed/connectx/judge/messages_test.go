//go:build vm

package main

import (
	_ "embed"
	"encoding/json"
	"testing"
	"time"

	"github.com/goverbs/goverbs/internal/sim/connectx/fabric"
	"github.com/goverbs/goverbs/testbed/vm/program"
)

//go:embed testdata/messages.py
var messagesPython string

// A traffic describes messages of all kinds and sizes that two ends send each
// other at the same time with the C library. The receiver checks each.
type traffic struct {
	count  int // of both ends; a multiple of four batches
	limit  time.Duration
	faulty bool // the network loses and reorders
}

// An endConfig is the configuration of an end.
type endConfig struct {
	Device  string `json:"device"`
	GID     int    `json:"gid"`
	Port    int    `json:"port"`
	Address string `json:"address"` // of the other end, if it listens already
	Count   int    `json:"count"`   // to send
	Timeout int    `json:"timeout"` // acknowledgment timeout
	Faulty  bool   `json:"faulty"`  // the network loses and reorders
	Careful bool   `json:"careful"` // avoid what rxe is known to do wrongly
}

// A tally has the counts of an end.
type tally struct {
	Sent      int     `json:"sent"`
	Received  int     `json:"received"`
	Bytes     int     `json:"bytes"`
	Longer    int     `json:"longer"` // messages of more than one packet
	Large     int     `json:"large"`  // messages of 1 MiB
	Events    int     `json:"events"`
	Seconds   float64 `json:"seconds"`
	Sends     int     `json:"SEND"`
	SendImms  int     `json:"SEND_IMM"`
	Writes    int     `json:"WRITE"`
	WriteImms int     `json:"WRITE_IMM"`
	Reads     int     `json:"READ"`
	Adds      int     `json:"FETCH_ADD"`
	Swaps     int     `json:"CMP_SWAP"`
}

// batch is the number of messages that messages.py sends at a time.
const batch = 125

// shares returns how many messages each end sends. Over a lossy network, rxe
// sends only a quarter of them, because it is slow.
func (x traffic) shares(server, client end) (fromServer, fromClient int) {
	rxe := x.count / 2
	if x.faulty {
		rxe = x.count / 4
	}
	if server.device == "rxe0" {
		return rxe, x.count - rxe
	}
	return x.count - rxe, rxe
}

// exchange makes two ends send each other messages.
func (m *machines) exchange(t *testing.T, x traffic, server, client end) {
	port := m.port()
	fromServer, fromClient := x.shares(server, client)
	start := func(e end, address string, count int) *program.Process {
		isRXE := e.device == "rxe0"
		a := endConfig{Device: e.device, GID: e.gid, Port: port, Address: address, Count: count, Timeout: 16,
			Faulty: x.faulty, Careful: isRXE && x.faulty}
		switch {
		case a.Careful:
			a.Timeout = 14 // for rxe, seven retries are unlimited
		case isRXE:
			a.Timeout = 18 // a busy guest is slow, and rxe makes mistakes when it retransmits
		}
		args, err := json.Marshal(a)
		if err != nil {
			t.Fatal(err)
		}
		return program.StartFor(t, x.limit, e.guest, "python3", "-c", messagesPython, string(args))
	}
	s := start(server, "", fromServer)
	if !m.awaitListener(t, server.guest, s, port) {
		t.Fatalf("the server does not listen:\n%s", &s.Stderr)
	}
	c := start(client, server.host, fromClient)
	serverErr, clientErr := program.Finish(s, c)
	if serverErr != nil || clientErr != nil {
		t.Fatalf("server: %v\n%s\nclient: %v\n%s", serverErr, s.Stderr.String(), clientErr, c.Stderr.String())
	}
	for p, count := range map[*program.Process]int{s: fromServer, c: fromClient} {
		var got tally
		if err := json.Unmarshal([]byte(p.Stdout.String()), &got); err != nil {
			t.Fatalf("%v: %s", err, p.Stdout.String())
		}
		got.check(t, count, x.count-count)
		t.Logf("%+v", got)
	}
}

// check checks the counts of an end.
func (y *tally) check(t *testing.T, sent, received int) {
	t.Helper()
	kinds := y.Sends + y.SendImms + y.Writes + y.WriteImms + y.Reads + y.Adds + y.Swaps
	if y.Sent != sent || kinds != sent || y.Received != received {
		t.Errorf("%d were sent, by kinds %d, and %d received, want %d and %d", y.Sent, kinds, y.Received, sent, received)
	}
	if min(y.Sends, y.SendImms, y.Writes, y.WriteImms, y.Reads, y.Adds, y.Swaps, y.Longer, y.Large) == 0 {
		t.Errorf("a kind is missing: %+v", y)
	}
}

// bad returns faults that lose one percent of the packets from ports, and
// reorder another.
func bad(ports ...string) (faults []fabric.Fault) {
	for _, port := range ports {
		faults = append(faults, fabric.Fault{Action: fabric.Drop, Port: port, Probability: 0.01},
			fabric.Fault{Action: fabric.Reorder, Behind: 3, Port: port, Probability: 0.01})
	}
	return faults
}

// testMessages exchanges messages between the devices of two guests and, if all
// is set, between the kernel's rxe and a device, also over a network that loses
// and reorders packets.
func (m *machines) testMessages(t *testing.T, x traffic, all bool) {
	first, other := m.end(t, 0, "mlx5_0", "10.9.0.1"), m.end(t, 1, "mlx5_0", "10.9.0.2")
	t.Run("mlx5", func(t *testing.T) { m.exchange(t, x, first, other) })
	first, rxe := m.end(t, 0, "mlx5_0", "10.9.1.1"), m.end(t, 1, "rxe0", "10.9.1.2")
	if all {
		t.Run("rxe", func(t *testing.T) { m.exchange(t, x, first, rxe) })
	}
	t.Run("rxe_faulty", func(t *testing.T) {
		hits := m.withFaults(t, bad(m.world.Devices[0].Name, card)...)
		x.faulty = true
		m.exchange(t, x, first, rxe)
		n := hits()
		if n[fabric.Drop] == 0 || n[fabric.Reorder] == 0 {
			t.Errorf("packets hit by faults: %v", n)
		}
		t.Logf("packets hit by faults: %v", n)
	})
}
