package connectx

import (
	"encoding/binary"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/internal/sim/connectx/engine"
	"github.com/goverbs/goverbs/internal/sim/connectx/prm"
)

// creations are the commands that return an object's number, and the names of
// the fields that have such a number.
var creations = map[uint16][]string{
	0x200: {"mkey_index"}, 0x400: {"cqn", "cqn_snd", "cqn_rcv"}, 0x500: {"qpn"}, 0x700: {"srqn"}, 0x705: {"xrc_srqn"},
	0x90c: {"rmpn", "srqn_rmpn_xrqn", "srqn_xrqn"}, 0x710: {"dctn"},
	0x80e: {"xrcd"}, 0x800: {"pd"}, 0x802: {"uar", "uar_page"}, 0x816: {"transport_domain"},
	0x900: {"tirn", "destination_id"}, 0x904: {"sqn"},
	0x908: {"rqn", "inline_rqn"}, 0x912: {"tisn", "tis_num_0"}, 0x916: {"rqtn", "indirect_table"}, 0x930: {"table_id"},
	0x933: {"group_id"}, 0xa08: {"umem_id", "cq_umem_id", "wq_umem_id", "dbr_umem_id", "mkey_umem_id"},
}

// A sequence is a sequence of commands. Most numbers and addresses in it are
// valid.
type sequence struct {
	*objects
	last    map[string]uint32 // the default number of a field
	numbers []uint32
	done    map[uint16]int // commands that succeeded
}

func newSequence(t *testing.T, ethernet bool) *sequence {
	t.Helper()
	o := newObjects(t, func(c *Config) {
		if ethernet {
			c.LinkLayer = Ethernet
		}
	})
	s := &sequence{objects: o, last: map[string]uint32{"c_eqn": o.eqn}, done: make(map[uint16]int)}
	for opcode, n := range map[uint16]uint32{0x800: o.pd, 0x400: o.cqn, 0x802: o.uar} {
		s.created(opcode, n)
	}
	return s
}

func (s *sequence) created(opcode uint16, n uint32) {
	for _, name := range creations[opcode] {
		s.last[name] = n
	}
	s.numbers = append(s.numbers, n)
}

// opcodes are all opcodes; a sequence has their indices.
func opcodes() []uint16 { return slices.Sorted(maps.Keys(byOpcode)) }

// op encodes a command of a sequence: its opcode, the number of addresses
// behind it, and fields with their values.
func op(opcode uint16, extra byte, fields ...any) []byte {
	b := []byte{byte(slices.Index(opcodes(), opcode)), 0, extra, byte(len(fields) / 2)}
	for i := 0; i < len(fields); i += 2 {
		at := 0
		for f := range byOpcode[opcode].in.Fields {
			if strings.HasSuffix(f.Name, fields[i].(string)) {
				break
			}
			at++
		}
		b = binary.BigEndian.AppendUint16(b, uint16(at))
		b = binary.BigEndian.AppendUint32(b, uint32(fields[i+1].(int)))
	}
	return b
}

// step executes the first command of ops and returns the rest.
func (s *sequence) step(ops []byte) []byte {
	all := opcodes()
	opcode, opMod, extra, sets := all[int(ops[0])%len(all)], int(ops[1]), int(ops[2]%33)*8, int(ops[3]%9)
	ops = ops[4:]
	layout := byOpcode[opcode].in
	in := input(opcode, opMod, layout, extra, func(in []byte) {
		fields := slices.Collect(layout.Fields)
		for _, f := range fields {
			s.fill(in, f)
		}
		for ; sets > 0 && len(ops) >= 6 && len(fields) > 0; sets-- {
			f := fields[int(binary.BigEndian.Uint16(ops))%len(fields)]
			s.set(in, f, binary.BigEndian.Uint32(ops[2:]))
			ops = ops[6:]
		}
		for at := layout.Size; at < len(in); at += 8 {
			binary.BigEndian.PutUint64(in[at:], s.record&^(pageSize-1))
		}
	})
	entry := s.put(0, in, byOpcode[opcode].out.Size+extra)
	s.ring(1)
	if prm.CmdEntryOwnership.Is(entry) {
		s.t.Fatalf("opcode %#x did not end", opcode)
	}
	if out := s.get(entry); prm.CmdEntryStatus.Get(entry) == 0 && !prm.CmdStatus.Is(out) {
		s.done[opcode]++
		if creations[opcode] != nil {
			s.created(opcode, binary.BigEndian.Uint32(out[8:])&0xffffff)
		}
	}
	return ops
}

// fill sets a field to a valid number.
func (s *sequence) fill(in []byte, f prm.Field) {
	name := f.Name[strings.LastIndexByte(f.Name, '.')+1:]
	if n, ok := s.last[name]; ok && f.Width <= 32 {
		f.Set(in, uint64(n))
	} else if f.Width == 64 && strings.Contains(name, "addr") {
		f.Set(in, s.record)
	}
}

// smallest is the smallest value that is an address, and not a size or an offset.
const smallest = 64

// set sets a field to another value: the number of any object, the address of
// existing memory or, with the top bit, probably an invalid value.
func (s *sequence) set(in []byte, f prm.Field, v uint32) {
	switch {
	case f.Width > 64:
		b := in[f.Offset/8:][:f.Width/8]
		b[int(v>>8)%len(b)] = byte(v)
	case v>>31 != 0:
		f.Set(in, uint64(v)<<32|uint64(v))
	case f.Width == 24:
		f.Set(in, uint64(s.numbers[int(v)%len(s.numbers)]))
	case f.Width == 64 && v >= smallest:
		f.Set(in, s.record+uint64(v%pageSize))
	default:
		f.Set(in, uint64(v))
	}
}

// usual returns sequences that create many objects, use them and destroy them.
func usual() map[bool][]byte {
	return map[bool][]byte{
		false: slices.Concat(
			op(0x80e, 0), op(0x500, 1, "log_sq_size", 4, "log_rq_size", 4, "pm_state", 3), op(0x502, 0, "pm_state", 3),
			op(0x503, 0, "mtu", 3, "pm_state", 3), op(0x504, 0),
			op(0x50b, 0), op(0x50a, 0), op(0x200, 1, "log_page_size", 12), op(0x201, 0), op(0x202, 0),
			op(0x90c, 1, "log_wq_stride", 5, "log_wq_sz", 4),
			op(0x710, 0, "mtu", 3), op(0x713, 0), op(0x714, 0), op(0x712, 0), op(0x711, 0),
			op(0x90e, 0), op(0x403, 0), op(0x402, 0), op(0x501, 0), op(0x80f, 0), op(0x401, 0), op(0x801, 0)),
		true: slices.Concat(
			op(0x816, 0), op(0x912, 0), op(0x904, 1, "wq_type", wqCyclic, "tis_lst_sz", 1, "log_wq_sz", 4, "log_wq_stride", 6),
			op(0x908, 1, "wq_type", wqCyclic, "log_wq_sz", 4, "log_wq_stride", 4), op(0x900, 0),
			op(0x930, 0, "log_size", 4), op(0x92f, 0), op(0x933, 0, "end_flow_index", 7), op(0x936, 0),
			op(0x938, 0), op(0x934, 0), op(0x931, 0), op(0x901, 0), op(0x817, 0)),
	}
}

// TestUsual checks that the fuzzer's seeds pass the checks.
func TestUsual(t *testing.T) {
	for ethernet, ops := range usual() {
		s := newSequence(t, ethernet)
		n := 0
		for ; len(ops) >= 4; n++ {
			ops = s.step(ops)
		}
		if len(s.done) != n {
			t.Errorf("ethernet %v: %d of %d commands succeeded: %#x", ethernet, len(s.done), n, s.done)
		}
	}
}

// FuzzObjects executes arbitrary commands on the objects that they create. Each
// must end, and a reset must remove everything.
func FuzzObjects(f *testing.F) {
	for ethernet, ops := range usual() {
		f.Add(ops, ethernet)
	}
	f.Fuzz(func(t *testing.T, ops []byte, ethernet bool) {
		s := newSequence(t, ethernet)
		for n := 0; n < 64 && len(ops) >= 4; n++ {
			ops = s.step(ops)
		}
		s.loop.Run(func() {
			if s.device.Reset(); s.device.hca.Objects() != (engine.Objects{}) {
				t.Errorf("after a reset: %+v", s.device.hca.Objects())
			}
		})
		s.pages = make(map[uint64]bool)
		s.setQueue()
		s.boot()
	})
}
