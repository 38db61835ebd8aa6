package verbstest

import (
	"math/rand/v2"
	"os"
	"strconv"
)

// An Option is an option of [NewNetwork] and [New].
type Option func(*Network)

// SeedVariable is the environment variable with the seed of networks whose seed is 0.
const SeedVariable = "VERBSTEST_SEED"

// Seed makes a seed decide in which order packets, completions and events arrive, and which packets
// are hit by faults with a probability. Each takes its own short time, up to 20 microseconds, but
// the packets to a QP keep their order. Without a seed, everything that a post causes has happened
// when it returns.
//
// The seed 0 stands for the one in [SeedVariable] or, if that is not set, for a random one. It is logged
// if the test fails.
//
// The device works in real time, beside the program: another run with the same seed is similar, but
// only [Steps] makes it the same. Seed does not work in a bubble of testing/synctest.
func Seed(seed uint64) Option { return func(n *Network) { n.setSeed(seed, false) } }

// Steps is like [Seed], but packets, completions, events and the timers of devices wait for
// [Network.Step]. A test that calls the program and Step in its own order, from one goroutine,
// can be replayed: with the same seed, everything happens in the same order.
//
// A program that waits for a completion does not return until another goroutine calls Step. The
// commands of the kernel and the connection manager do not wait for steps.
func Steps(seed uint64) Option { return func(n *Network) { n.setSeed(seed, true) } }

// Step delivers the next packet, completion event or asynchronous event, or lets the next timer of a
// device expire, whichever is first. It returns false if there is none. Time passes only in Step:
// a retransmission that is due in a second is one step away if nothing else is to be delivered.
func (n *Network) Step() bool {
	n.t.Helper()
	if !n.stepped {
		n.t.Fatal("verbstest: Step: the network does not wait for steps: use NewNetwork(t, verbstest.Steps(seed))")
	}
	return n.loop.Step()
}

func (n *Network) setSeed(seed uint64, stepped bool) {
	n.t.Helper()
	if n.loop.Seeded() {
		n.t.Fatal("verbstest: a network has one seed: use one of the options Seed and Steps, once")
	}
	if seed == 0 {
		seed = n.chooseSeed()
	}
	n.seed, n.stepped = seed, stepped
	if stepped {
		n.loop.SeedSteps(seed)
	} else {
		n.loop.Seed(seed)
	}
	n.t.Cleanup(func() {
		if n.t.Failed() {
			n.t.Logf("verbstest: the seed was %d: run the test with %s=%[1]d to use it again", seed, SeedVariable)
		}
	})
}

func (n *Network) chooseSeed() uint64 {
	n.t.Helper()
	text := os.Getenv(SeedVariable)
	if text == "" {
		return rand.Uint64()
	}
	seed, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		n.t.Fatalf("verbstest: %s is %q: set it to a number from 0 to 2^64-1", SeedVariable, text)
	}
	return seed
}
