package compare

import (
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/goverbs/goverbs/uverbs"
)

// A Device is what is particular to the devices of a comparison. Its methods do the same on both devices.
type Device interface {
	// CompleteSends completes some of n sends. It returns how many, and whether the program flushes the others.
	CompleteSends(c *Comparison, n int) (done int, flushed bool)
	// CompleteRecvs completes some of n receives.
	CompleteRecvs(c *Comparison, n int) (done int, flushed bool)
	// Seen returns what a device was given, of the side with a number, without what may differ. said is what the
	// program said.
	Seen(side int, said string, lines []string) []string
	// Reset is called when the QP has been reset.
	Reset()
}

// An Ender can end the QP, as a device does after an error.
type Ender interface{ End(c *Comparison) }

// Rules say which steps there are, and what both programs refuse.
type Rules struct {
	Ops   map[uverbs.QPType][]uverbs.Opcode
	Flags []uverbs.SendFlags // each of a third of the requests
	All   uverbs.SendFlags   // of all requests that are not refused
	// Empty: a receive can have no SGE.
	Empty bool
	// Length is that of an SGE at most, for a type of QP; 0: any up to 1 MiB.
	Length func(s *Size) uint32
	QPNs   uint32 // those of datagrams are below
	// RDMA is set if READs and WRITEs have at most one SGE, and no inline data. They are posted in batches.
	RDMA bool
	Bad  int // of so many requests both programs refuse one
	List int // requests in a post, at most
	// Exact: queues have the same room in C and in Go.
	Exact     bool
	Solicited bool // the CQ can be armed for solicited completions
	Rearms    bool // the CQ is armed at once when an event has been read
	Resizes   bool // the CQ can be resized
	Drains    bool // the QP is reset only when all requests have completed
	// Resets: QPs with SRQs are not ended but reset, as C's library crashes.
	Resets bool
	// Errs: the programs move the QP to ERR before the device ends it.
	Errs bool
	// Renews: there is no way back from RESET. The QP is closed and another one created.
	Renews bool
}

// A Comparison is two programs on two devices.
type Comparison struct {
	Rand *rand.Rand
	Size Size

	t      testing.TB
	rules  Rules
	device Device
	names  [2]string
	sides  [2]Side

	mu  sync.Mutex
	log map[string][]string

	posted  [2]int  // sends and receives that have not completed
	held    [2]int  // at most so many occupy their queues, as completions of some have not been polled
	flushed [2]bool // those that remain are flushed
	count   uint64  // of requests
	armed   bool
	entries int // of the CQ
}

const (
	sends    = 0
	receives = 1
)

// New returns a comparison of programs with a QP. [Comparison.Start] follows.
func New(t testing.TB, size Size, rules Rules, seed uint64) *Comparison {
	return &Comparison{t: t, Rand: rand.New(rand.NewPCG(seed, 1)), Size: size, rules: rules, log: map[string][]string{},
		entries: entries}
}

// Record is for the configuration of the fabric.
func (c *Comparison) Record(device, what string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.log[device] = append(c.log[device], what)
}

// Start starts C's program on one device and Go's on the other.
func (c *Comparison) Start(p Program, d Device, forC, forGo string) {
	c.device, c.names = d, [2]string{forC, forGo}
	c.sides = [2]Side{p.NewC(c.t, forC), p.NewGo(c.t, forGo)}
	psn := c.psn()
	c.step("create", func(s Side) string { return s.Create(c.Size, psn) })
}

// psn returns a first PSN. Some are such that the PSNs soon begin again.
func (c *Comparison) psn() uint32 {
	if c.Rand.IntN(2) == 0 {
		return 1<<24 - 1 - c.Rand.Uint32N(500)
	}
	return c.Rand.Uint32N(1 << 24)
}

// step executes a step on both sides.
func (c *Comparison) step(name string, f func(Side) string) string {
	c.t.Helper()
	var said [2]string
	var did [2][]string
	for i, s := range c.sides {
		said[i] = f(s)
		c.mu.Lock()
		did[i] = c.log[c.names[i]]
		delete(c.log, c.names[i])
		c.mu.Unlock()
		did[i] = c.device.Seen(i, said[i], did[i])
	}
	if said[0] != said[1] {
		c.t.Fatalf("%s:\nC says  %s\nGo says %s", name, said[0], said[1])
	}
	if !slices.Equal(did[0], did[1]) {
		c.t.Fatalf("%s:\nC:  %s\nGo: %s", name, strings.Join(did[0], "\n    "), strings.Join(did[1], "\n    "))
	}
	return said[0]
}

// Bytes fills b with random bytes.
func (c *Comparison) Bytes(b []byte) {
	for i := range b {
		b[i] = byte(c.Rand.Uint32())
	}
}
