package connectx

import (
	"testing"

	"github.com/goverbs/goverbs/internal/sim/connectx/prm"
)

// FuzzCommand executes arbitrary commands on a running device. Each must end,
// and the device must work afterwards.
func FuzzCommand(f *testing.F) {
	for opcode, c := range byOpcode {
		f.Add(input(opcode, 0, c.in, 0, nil), uint16(c.out.Size), true)
		f.Add(input(opcode, 1, c.in, 64, func(in []byte) {
			for i := 8; i < len(in); i++ {
				in[i] = byte(i)
			}
		}), uint16(c.out.Size+64), false)
	}
	f.Fuzz(func(t *testing.T, in []byte, outLength uint16, ethernet bool) {
		if len(in) < 8 || len(in) > 16<<10 {
			return
		}
		v := newDriver(t, func(c *Config) {
			if ethernet {
				c.LinkLayer = Ethernet
			}
		})
		v.boot()
		v.createUctx()
		eqn, _ := v.createEQ(4, 1<<eventCommand|1<<eventPort, 0)
		for range 2 {
			entry := v.put(0, in, int(outLength))
			v.ring(1)
			if prm.CmdEntryOwnership.Is(entry) {
				t.Fatal("the command did not end")
			}
		}
		v.arm(eqn, 0, true)
		v.loop.Run(v.device.Reset)
		v.pages = make(map[uint64]bool)
		v.setQueue()
		v.boot()
	})
}

// FuzzRegisters stores and reads arbitrary bytes anywhere in BAR 0.
func FuzzRegisters(f *testing.F) {
	f.Add([]byte{0, 0, 0x14, 4, 0, 1, 0, 0, 0, 0, 0x18, 4, 0xff, 0xff, 0xff, 0xff})
	f.Add([]byte{1, 0, 0x40, 4, 1, 0, 0, 0, 1, 0, 0x20, 8, 1, 2, 3, 4, 5, 6, 7, 8, 1, 8, 0, 8, 1, 2, 3, 4, 5, 6, 7, 8})
	f.Fuzz(func(t *testing.T, ops []byte) {
		v := newDriver(t, withODP)
		v.boot()
		v.createEQ(4, 1<<eventPort, 0)
		for len(ops) >= 4 {
			offset, n := int(ops[1])<<8|int(ops[2]), int(ops[3]%65)
			if ops[0]&1 != 0 {
				offset += int(v.uar) << uarShift
			}
			ops = ops[4:]
			n = min(n, len(ops))
			v.write(offset, ops[:n])
			v.read(offset)
			ops = ops[n:]
		}
	})
}
