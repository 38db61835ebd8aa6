//go:build vm

package differential

import (
	"strings"
	"testing"

	"github.com/goverbs/goverbs/testbed/connectx/engine"
	"github.com/goverbs/goverbs/testbed/vm"
	"github.com/goverbs/goverbs/testbed/vm/program"
)

// halfWay has commands of the device fail while objects are made that the guests of
// testbed/faults do not have, of raw Ethernet and registers for bursts: each is a
// typed error, nothing of the object is left, and the next one is made.
func (s *stage) halfWay(t *testing.T) {
	const (
		status   = 0x8 // limits exceeded
		syndrome = 0xabcde
	)
	v := program.Converse(t, s.guest, s.install(t, vm.BuildProgram(t, "github.com/goverbs/goverbs/testbed/faults/victim", "", "")))
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
		v.Do("make " + x.kind) // what the driver makes for the first user
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
	// Queue pairs do without a second register page, and use the first.
	before := s.objects()
	fail(0x802, 1)
	v.Do("make many")
	if after := s.objects(); after != before {
		t.Errorf("queue pairs without registers leave %+v, it was %+v", after, before)
	}
	v.Do("close")
	v.Want("left", "= []")
}

// objects counts what the device has, but for the memory keys that the driver keeps
// for the next user.
func (s *stage) objects() (n engine.Objects) {
	s.world.Loop.Run(func() { n = s.world.Devices[0].Engine().Objects() })
	n.MKeys, n.Translations = 0, 0
	return n
}
