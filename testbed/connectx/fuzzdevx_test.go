package connectx

import (
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/goverbs/goverbs/internal/sim/connectx/engine"
	"github.com/goverbs/goverbs/internal/sim/connectx/prm"
)

// newUserSequence returns a sequence of commands of a user, who has a protection domain, a UAR page,
// two umems, and a completion queue and a queue pair in them.
func newUserSequence(t *testing.T) (s *sequence, x *devx) {
	t.Helper()
	x = newDevX(t)
	s = &sequence{objects: &objects{driver: x.driver, record: x.pages[3]}, done: make(map[uint16]int),
		last: map[string]uint32{"uid": uint32(x.uid), "c_eqn": uint32(x.eqn), "c_eqn_or_apu_element": uint32(x.eqn)}}
	for opcode, n := range map[uint16]uint64{0x800: x.pd, 0x802: x.uar, 0xa08: x.rings, 0x400: x.cqn, 0x500: x.qpn} {
		s.created(opcode, uint32(n))
	}
	return s, x
}

// usualOfUser is a sequence that creates objects in umems, uses them and destroys them.
func usualOfUser() []byte {
	return slices.Concat(
		op(0xa08, 2, "num_of_mtt", 2),
		op(0x400, 0, "cq_umem_valid", 1, "log_cq_size", 3), op(0x402, 0),
		op(0x500, 0, "wq_umem_valid", 1, "wq_umem_offset", 0, "pm_state", 3), op(0x502, 0, "pm_state", 3), op(0x50b, 0),
		op(0x403, 0), op(0x200, 0, "access_mode_1_0", 1, "log_page_size", 12, "mkey_umem_valid", 1, "len", 8), op(0x201, 0),
		op(0x90c, 0, "wq_umem_valid", 1, "log_wq_stride", 5, "log_wq_sz", 2), op(0x90f, 0), op(0x90e, 0),
		op(0x202, 0), op(0x501, 0), op(0x401, 0), op(0xa0a, 0))
}

// TestUsualOfUser checks that the fuzzer's seed passes the checks.
func TestUsualOfUser(t *testing.T) {
	s, _ := newUserSequence(t)
	n, ops := 0, usualOfUser()
	for ; len(ops) >= 4; n++ {
		opcode := opcodes()[ops[0]]
		if ops = s.step(ops); s.done[opcode] == 0 {
			t.Errorf("command %d, %#x, failed", n, opcode)
		}
	}
}

// FuzzDevX executes arbitrary commands of a user on the user's objects. Each must end, none may
// change the objects of another user, and a reset must remove everything.
func FuzzDevX(f *testing.F) {
	f.Add(usualOfUser())
	f.Fuzz(executeAsUser)
}

// TestMutatedCommands is FuzzDevX with changes of the usual commands that are always the same.
func TestMutatedCommands(t *testing.T) {
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 0))
		ops := usualOfUser()
		for range 1 + random.IntN(12) {
			ops[random.IntN(len(ops))] = byte(random.Uint32())
		}
		executeAsUser(t, ops)
	}
}

func executeAsUser(t *testing.T, ops []byte) {
	s, x := newUserSequence(t)
	other := x.newUser()
	pd := other.number(0x800, prm.AllocPDOutPD, nil)
	id, _ := other.createUMem(1, 0)
	s.numbers = append(s.numbers, uint32(pd), uint32(id))
	for n := 0; n < 64 && len(ops) >= 4; n++ {
		// The kernel sets the user of each command: the step may not choose another.
		ops = s.step(withoutUser(ops))
	}
	x.run(0xa0a, 0, other.as(set(prm.DestroyUMemInUMemID, id)))
	x.run(0x801, 0, other.as(set(prm.DeallocPDInPD, pd)))
	s.loop.Run(func() {
		if s.device.Reset(); s.device.hca.Objects() != (engine.Objects{}) || len(s.device.memories) > 0 {
			t.Errorf("after a reset: %+v and %d umems", s.device.hca.Objects(), len(s.device.memories))
		}
	})
	s.pages = make(map[uint64]bool)
	s.setQueue()
	s.boot()
}

// withoutUser returns operations whose first one does not set the field of the user.
func withoutUser(ops []byte) []byte {
	all := opcodes()
	fields := slices.Collect(byOpcode[all[int(ops[0])%len(all)]].in.Fields)
	at := slices.IndexFunc(fields, func(f prm.Field) bool { return f.Name == prm.CmdUID.Name })
	ops = slices.Clone(ops)
	for i := range int(ops[3] % 9) {
		b := ops[4:]
		if len(b) < 6*(i+1) {
			break
		}
		if b = b[6*i:]; int(binary.BigEndian.Uint16(b))%len(fields) == at {
			binary.BigEndian.PutUint16(b, uint16(at+1))
		}
	}
	return ops
}
