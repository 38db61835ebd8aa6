package kv

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/goverbs/goverbs/uverbs"
	"github.com/goverbs/goverbs/verbstest"
)

// A recorder keeps what a schedule reports.
type recorder struct {
	testing.TB
	errs     []string
	cleanups []func()
}

func (r *recorder) Helper()                   {}
func (r *recorder) Failed() bool              { return len(r.errs) > 0 }
func (r *recorder) Logf(string, ...any)       {}
func (r *recorder) Cleanup(f func())          { r.cleanups = append(r.cleanups, f) }
func (r *recorder) Errorf(f string, a ...any) { r.errs = append(r.errs, fmt.Sprintf(f, a...)) }
func (r *recorder) Error(a ...any)            { r.errs = append(r.errs, fmt.Sprint(a...)) }
func (r *recorder) Fatalf(f string, a ...any) { panic(fmt.Sprintf(f, a...)) }
func (r *recorder) Fatal(a ...any)            { panic(fmt.Sprint(a...)) }

func (r *recorder) end() {
	for _, f := range slices.Backward(r.cleanups) {
		f()
	}
}

const replicas = 3

// A schedule is a random run of a cluster. Node 0 is the primary.
type schedule struct {
	rec      *recorder
	random   *rand.Rand
	net      *verbstest.Network
	machines [replicas]*verbstest.Machine
	nodes    [replicas]*Node
	links    [replicas][2]*Link // of the primary and of the backup; unused for 0
	faults   []func()
	down     [replicas]bool // the port

	wrote   []Record
	history strings.Builder
	problem error
}

// play plays the schedule of a seed. slots is the number of sends of a link that may be in flight: the
// program is correct up to window.
func play(seed uint64, slots int) (problem error, history uint64) {
	s := &schedule{rec: &recorder{}, random: rand.New(rand.NewPCG(seed, 1))}
	defer func() {
		s.rec.end()
		if len(s.rec.errs) > 0 && problem == nil {
			problem = errors.New(strings.Join(s.rec.errs, "\n"))
		}
		h := fnv.New64a()
		h.Write([]byte(s.history.String()))
		history = h.Sum64()
	}()
	s.net = verbstest.NewNetwork(s.rec, verbstest.Steps(seed|1<<63))
	for i := range s.nodes {
		s.machines[i] = s.net.Machine()
		s.machines[i].Run(func() {
			var err error
			s.nodes[i], err = Open("", strconv.Itoa(i), replicas)
			s.must(err)
			s.nodes[i].slots = slots
		})
	}
	defer func() {
		for _, n := range s.nodes {
			s.must(n.Close())
		}
	}()
	s.run()
	return s.problem, 0
}

func (s *schedule) must(err error) {
	if err != nil && s.problem == nil {
		s.problem = err
	}
}

func (s *schedule) note(format string, args ...any) { fmt.Fprintf(&s.history, format+"\n", args...) }

// run plays random actions, and checks the guarantees after each. Then it either removes the primary
// or repairs everything.
func (s *schedule) run() {
	for i := range 150 + s.random.IntN(150) {
		s.act()
		if s.check(); s.problem != nil {
			s.problem = fmt.Errorf("action %d: %w", i, s.problem)
			return
		}
	}
	if s.random.IntN(2) == 0 {
		return // the primary is lost: check has compared the backups
	}
	s.repair()
}

func (s *schedule) act() {
	backup := 1 + s.random.IntN(replicas-1)
	switch k := s.random.IntN(100); {
	case k < 25:
		s.put()
	case k < 60:
		s.step(s.random.IntN(replicas))
	case k < 85:
		for range s.random.IntN(12) {
			s.net.Step()
		}
	case k < 90:
		s.fault()
	case k < 93 && len(s.faults) > 0:
		s.faults[0]()
		s.faults = s.faults[1:]
	case k < 94:
		s.down[backup] = !s.down[backup]
		s.machines[backup].SetPort(!s.down[backup])
		s.note("port %d %t", backup, !s.down[backup])
	case k < 95:
		if l := s.links[backup][0]; l != nil && l.Err() == nil {
			s.machines[0].FailCompletion(l.qp, uverbs.WCRemOpErr, s.random.IntN(3))
			s.note("fail %d", backup)
		}
	default:
		s.connect(backup)
	}
}

func (s *schedule) put() {
	var value [ValueSize]byte
	binary.LittleEndian.PutUint64(value[s.random.IntN(ValueSize-8):], s.random.Uint64())
	r := Record{Key: uint64(s.random.IntN(5)), Value: value}
	s.wrote = append(s.wrote, r)
	s.note("put %d", s.nodes[0].Put(r.Key, r.Value))
}

func (s *schedule) step(i int) {
	n := s.nodes[i]
	_, err := n.Step()
	s.must(err)
	s.note("%d: %d records, %d committed", i, len(n.Log()), n.Committed())
}

func (s *schedule) fault() {
	actions := []verbstest.PacketAction{verbstest.Drop, verbstest.Duplicate, verbstest.Delay, verbstest.Reorder}
	f := verbstest.PacketFault{Action: actions[s.random.IntN(len(actions))], Skip: s.random.IntN(5),
		Count: 1 + s.random.IntN(10), Probability: 0.1 + s.random.Float64()*0.8}
	if f.Action == verbstest.Delay {
		f.Delay = time.Duration(1 + s.random.IntN(1000000))
	}
	if s.random.IntN(2) == 0 {
		f.From = s.machines[s.random.IntN(replicas)]
	}
	s.faults = append(s.faults, s.net.AddFault(f))
	s.note("%s", f.Action)
}

// connect connects a backup anew if its link is broken at either end.
func (s *schedule) connect(backup int) {
	if s.down[backup] {
		return
	}
	l := &s.links[backup]
	for _, end := range l {
		if end != nil && end.Err() == nil && !s.broken(l) {
			return
		}
	}
	for i, end := range l {
		if end != nil && end.Err() == nil {
			s.must(end.Close())
			l[i] = nil
		}
	}
	var hello [2]Hello
	for i, n := range []*Node{s.nodes[0], s.nodes[backup]} {
		var err error
		if l[i], err = n.NewLink(); err == nil {
			hello[i], err = l[i].Hello()
		}
		if err != nil {
			s.must(err)
			return
		}
	}
	s.note("connect %d at %d", backup, hello[1].Records)
	s.must(l[1].Connect(hello[0], false))
	s.must(l[0].Connect(hello[1], true))
}

func (s *schedule) broken(l *[2]*Link) bool { return l[0].Err() != nil || l[1].Err() != nil }

// check checks the guarantees: each log is a beginning of the primary's, one of the backups has
// each committed record, and reads return the last committed value.
func (s *schedule) check() {
	for i, n := range s.nodes {
		if log := n.Log(); len(log) > len(s.wrote) || !slices.Equal(log, s.wrote[:len(log)]) {
			s.must(fmt.Errorf("the log of node %d differs from what was written", i))
		}
	}
	committed := s.nodes[0].Committed()
	if len(s.nodes[1].Log()) < committed && len(s.nodes[2].Log()) < committed {
		s.must(fmt.Errorf("%d writes are committed, the backups have %d and %d", committed, len(s.nodes[1].Log()),
			len(s.nodes[2].Log())))
	}
	want := map[uint64][ValueSize]byte{}
	for _, r := range s.wrote[:committed] {
		want[r.Key] = r.Value
	}
	for key := range uint64(5) {
		if v, _ := s.nodes[0].Get(key); v != want[key] {
			s.must(fmt.Errorf("key %d is %x, want %x", key, v, want[key]))
		}
	}
	for i := 1; i < replicas; i++ {
		for _, l := range s.links[i] {
			if l != nil && errors.Is(l.Err(), ErrProtocol) {
				s.must(l.Err())
			}
		}
	}
}

// repair ends all faults, and checks that everything is committed then.
func (s *schedule) repair() {
	for _, remove := range s.faults {
		remove()
	}
	for i, down := range s.down {
		if down {
			s.machines[i].SetPort(true)
			s.down[i] = false
		}
	}
	done := func() bool {
		for _, n := range s.nodes {
			if len(n.Log()) < len(s.wrote) {
				return false
			}
		}
		return s.nodes[0].Committed() == len(s.wrote)
	}
	for range 100000 {
		if s.check(); s.problem != nil || done() {
			return
		}
		idle := !s.net.Step()
		for i := range s.nodes {
			s.step(i)
		}
		for i := 1; i < replicas; i++ {
			if l := &s.links[i]; l[0] == nil || s.broken(l) || idle {
				s.connect(i)
			}
		}
	}
	s.must(fmt.Errorf("not all of %d writes are committed after the repair", len(s.wrote)))
}

// schedules is the number of random schedules: KV_SCHEDULES, or a few.
func schedules(t *testing.T) uint64 {
	text := os.Getenv("KV_SCHEDULES")
	if text == "" {
		return 200
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatalf("KV_SCHEDULES: %v", err)
	}
	return n
}

// TestSchedules checks that random schedules find nothing in the store.
func TestSchedules(t *testing.T) {
	for seed := range schedules(t) {
		if problem, _ := play(seed, window); problem != nil {
			t.Fatalf("seed %d: %v", seed, problem)
		}
	}
}

// TestWait checks the store in real time: a goroutine for each node.
func TestWait(t *testing.T) {
	net := verbstest.NewNetwork(t)
	var nodes [2]*Node
	var links [2]*Link
	var hello [2]Hello
	for i := range nodes {
		net.Machine().Run(func() {
			var err error
			if nodes[i], err = Open("", strconv.Itoa(i), 2); err == nil {
				t.Cleanup(func() {
					if err := nodes[i].Close(); err != nil {
						t.Error(err)
					}
				})
				links[i], err = nodes[i].NewLink()
			}
			if err == nil {
				hello[i], err = links[i].Hello()
			}
			if err != nil {
				t.Fatal(err)
			}
		})
	}
	if err := errors.Join(links[1].Connect(hello[0], false), links[0].Connect(hello[1], true)); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	const writes = 100
	backup := make(chan error, 1)
	go func() {
		var err error
		for err == nil {
			err = nodes[1].Wait(ctx)
		}
		backup <- err
	}()
	for i := range writes {
		nodes[0].Put(uint64(i), [ValueSize]byte{byte(i)})
	}
	for nodes[0].Committed() < writes {
		if err := nodes[0].Wait(ctx); err != nil {
			t.Fatal(err)
		}
	}
	cancel()
	if err := <-backup; !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	if n := len(nodes[1].Log()); n != writes {
		t.Errorf("the backup has %d records", n)
	}
	if v, ok := nodes[0].Get(7); !ok || v[0] != 7 {
		t.Errorf("key 7 is %x, %t", v, ok)
	}
}
