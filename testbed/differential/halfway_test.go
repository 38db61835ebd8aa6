//go:build vm

package differential

import (
	"strings"
	"testing"

	"github.com/goverbs/goverbs/internal/sim/connectx/engine"
	"github.com/goverbs/goverbs/testbed/vm"
	"github.com/goverbs/goverbs/testbed/vm/program"
)

// halfWay makes commands of the device fail during the creation of objects that
// the guests of testbed/faults do not have: raw Ethernet and BlueFlame
// registers. Each failure must be a typed error, nothing of the object may be
// left, and the next creation must succeed.
func (s *stage) halfWay(t *testing.T) {
	const (
		status   = 0x8 // limits exceeded
		syndrome = 0xabcde
	)
	v := program.Converse(t, s.guest, s.install(t,
		vm.BuildProgram(t, "github.com/goverbs/goverbs/testbed/faults/victim", "", "")))
	v.Do("open mlx5_0")
	fail := func(opcode uint16, skip int) {
		var err error
		s.world.Loop.Run(func() { err = s.world.Devices[0].FailCommand(opcode, status, syndrome, skip, 1) })
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, x := range []struct {
		kind   string
		opcode uint16
	}{
		{"raw", 0x912}, {"raw", 0x904}, {"raw", 0x908}, {"raw", 0x900}, // a TIS, the two queues, a TIR
		{"flow", 0x930}, {"flow", 0x933}, {"flow", 0x936},
		{"rss", 0x908}, {"rss", 0x909}, {"rss", 0x916}, {"rss", 0x900},
	} {
		v.Do("make " + x.kind) // objects that the driver creates for the first user
		before := s.objects()
		fail(x.opcode, 0)
		if said := v.Say("make " + x.kind); !strings.HasPrefix(said, "! uverbs: ") {
			t.Errorf("%s, where command %#x fails: %s", x.kind, x.opcode, said)
		} else {
			t.Logf("%s, %#x: %s", x.kind, x.opcode, said)
		}
		if after := s.objects(); after != before {
			t.Errorf("%s, where command %#x fails, leaves %+v, it was %+v", x.kind, x.opcode, after, before)
		}
	}
	// Queue pairs work without a second register page, and use the first one.
	before := s.objects()
	fail(0x802, 1)
	v.Do("make many")
	if after := s.objects(); after != before {
		t.Errorf("queue pairs without registers leave %+v, it was %+v", after, before)
	}
	v.Do("close")
	v.Want("left", "= []")
}

// objects returns the device's object counts, without the memory keys that the
// driver caches.
func (s *stage) objects() (n engine.Objects) {
	s.world.Loop.Run(func() { n = s.world.Devices[0].Engine().Objects() })
	n.MKeys, n.Translations = 0, 0
	return n
}
