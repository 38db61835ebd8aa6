package connectx

import (
	"bytes"
	"testing"

	"github.com/goverbs/goverbs/internal/sim/connectx/prm"
)

// TestProbe issues the commands of mlx5_core and mlx5_ib up to the port's
// attributes and back, twice.
func TestProbe(t *testing.T) {
	for _, link := range []LinkLayer{InfiniBand, Ethernet} {
		v := newDriver(t, func(c *Config) { c.LinkLayer = link })
		for range 2 {
			v.setQueue()
			v.boot()
			eqn, _ := v.createEQ(7, 1<<eventPort, 0)
			v.run(0x101, 0, nil)
			uar := v.run(0x802, 0, nil)
			v.run(0x803, 0, func(in []byte) { prm.DeallocUARInUAR.Set(in, prm.AllocUAROutUAR.Get(uar)) })
			v.run(0x302, 0, func(in []byte) { prm.DestroyEQInEQNumber.Set(in, uint64(eqn)) })
			v.run(0x803, 0, func(in []byte) { prm.DeallocUARInUAR.Set(in, uint64(v.uar)) })
			v.run(0x103, 0, nil)
			v.refused(0x105, 0, statusBadSystemState, reasonPagesHeld, nil)
			v.take()
			if len(v.pages) != 0 || v.device.PagesHeld() != 0 {
				t.Errorf("%d pages were not returned, the device has %d", len(v.pages), v.device.PagesHeld())
			}
			v.run(0x105, 0, nil)
		}
		v.reported(0)
	}
}

// TestRegisters checks the registers that a driver reads before its first
// command.
func TestRegisters(t *testing.T) {
	v := newDriver(t, func(c *Config) { c.Firmware = [3]uint16{20, 36, 7} })
	for _, r := range []struct {
		name   string
		offset int
		want   uint32
	}{
		{"firmware", 0x0, 36<<16 | 20},
		{"command interface", 0x4, 5<<16 | 7},
		{"command queue", 0x14, uint32(v.queue) | 0x56},
		{"initializing", 0x1fc, 1 << 30}, // the driver may reset the firmware
		{"health version", 0x230, 20<<24 | 36<<16 | 7},
		{"health syndrome", 0x23c, 0},
		{"behind", 0x1018, 0},
		{"a UAR page", 0x10000, 0},
	} {
		if got := v.read(r.offset); got != r.want {
			t.Errorf("%s: %#x, want %#x", r.name, got, r.want)
		}
	}
	var odd [3]byte
	v.device.ReadBAR(0x3, odd[:])
	if !bytes.Equal(odd[:], []byte{20, 0, 5}) {
		t.Errorf("three bytes from 3 on: % x", odd)
	}
	v.device.ReadBAR(v.device.config.barSize()-2, odd[:])
}

// TestPagesAreChecked checks that invalid and duplicate pages are refused, and
// that none of the command's pages are kept.
func TestPagesAreChecked(t *testing.T) {
	v := newDriver(t, nil)
	v.run(0x104, 0, nil)
	good := v.host.alloc(2)
	for name, list := range map[string][]uint64{
		"unaligned":      {good, good + pageSize + 8},
		"twice":          {good, good},
		"missing":        {good, 1 << 40},
		"beyond the end": {good, hostBase + hostSize},
	} {
		out := v.try(0x108, pagesGive, 16, 0, func(in []byte) {
			prm.ManagePagesInInputNumEntries.Set(in, 2)
			for i, a := range list {
				prm.ManagePagesInPAS.At(i).Set(in, a)
			}
		})
		if status(prm.CmdStatus.Get(out)) != statusBadParam || v.device.PagesHeld() != 0 {
			t.Errorf("%s: %s, the device has %d pages", name, hexStatus(out), v.device.PagesHeld())
		}
	}
	v.refused(0x108, pagesGive, statusBadInputLength, reasonLength, func(in []byte) {
		prm.ManagePagesInInputNumEntries.Set(in, 1<<31)
	})
	v.refused(0x102, 0, statusBadSystemState, reasonPagesMissing, nil)
}

// TestCapabilities checks that the program and the driver can lower
// capabilities but not raise them.
func TestCapabilities(t *testing.T) {
	old := Capability{CapGeneral, prm.HCACapCQEVersion, 0}
	v := newDriver(t, func(c *Config) { c.Capabilities = []Capability{old} })
	v.run(0x104, 0, nil)
	most := bytes.Clone(prm.QueryHCACapOutCapability.Bytes(v.run(0x100, 0, nil)))
	if prm.HCACapCQEVersion.Get(most) != 0 || prm.HCACapLogMaxQP.Get(most) != 17 {
		t.Errorf("CQE version %d, QPs %d", prm.HCACapCQEVersion.Get(most), prm.HCACapLogMaxQP.Get(most))
	}
	set := func(change func(page []byte)) func(in []byte) {
		return func(in []byte) {
			page := prm.SetHCACapInCapability.Bytes(in)
			copy(page, most)
			change(page)
		}
	}
	v.run(0x109, 0, set(func(page []byte) { prm.HCACapLogMaxQP.Set(page, 12) }))
	now := prm.QueryHCACapOutCapability.Bytes(v.run(0x100, 1, nil))
	if got := prm.HCACapLogMaxQP.Get(now); got != 12 {
		t.Errorf("log_max_qp is %d after it was set to 12", got)
	}
	v.refused(0x109, 0, statusBadParam, reasonCapability, set(func(page []byte) { prm.HCACapLogMaxQP.Set(page, 18) }))
	v.refused(0x109, 0, statusBadParam, reasonCapability, set(func(page []byte) { prm.HCACapPG.Set(page, 1) }))
	v.refused(0x100, 12<<1, statusBadParam, reasonOpMod, nil)
	v.run(0x100, int(CapFlowTable)<<1|1, nil)

	// What disables something is off, unless the program wants it.
	if prm.HCACapUMRModifyEntitySizeDisabled.Is(most) {
		t.Error("a device without configuration does not change memory keys by work requests")
	}
	less := restrictions[0]
	if v := newDriver(t, func(c *Config) { c.Capabilities = []Capability{less} }); v.device.caps.general(less.Field) != 1 {
		t.Errorf("%s is not set", less.Field.Name)
	}
	for _, c := range []Capability{
		{CapGeneral, prm.HCACapPG, 1},
		{CapGeneral, prm.HCACapLogMaxQP, 18},
		{CapType(99), prm.HCACapLogMaxQP, 1},
	} {
		if _, err := New(Config{Loop: v.loop, GUID: 1, Capabilities: []Capability{c}}); err == nil {
			t.Errorf("a device claims %s = %d", c.Field.Name, c.Value)
		}
	}
}

// TestAtomicCapabilities checks that the driver can set only the byte order.
func TestAtomicCapabilities(t *testing.T) {
	v := newDriver(t, nil)
	v.run(0x104, 0, nil)
	v.run(0x109, int(CapAtomic)<<1, func(in []byte) {
		prm.AtomicCapAtomicReq8BEndiannessMode.Set(prm.SetHCACapInCapability.Bytes(in), 1)
	})
	page := prm.QueryHCACapOutCapability.Bytes(v.run(0x100, int(CapAtomic)<<1|1, nil))
	if prm.AtomicCapAtomicReq8BEndiannessMode.Get(page) != 1 || prm.AtomicCapAtomicOperations.Get(page) != 3 {
		t.Errorf("mode %d, operations %#x", prm.AtomicCapAtomicReq8BEndiannessMode.Get(page),
			prm.AtomicCapAtomicOperations.Get(page))
	}
	v.refused(0x109, int(CapAtomic)<<1, statusBadParam, reasonCapability, func(in []byte) {
		prm.AtomicCapAtomicReq8BEndiannessMode.Set(prm.SetHCACapInCapability.Bytes(in), 2)
	})
}

// TestOrder checks commands before their time, unknown ones, and those of the
// other link layer.
func TestOrder(t *testing.T) {
	v := newDriver(t, nil)
	v.refused(0x107, 1, statusBadSystemState, reasonNotEnabled, nil)
	v.run(0x104, 0, nil)
	v.refused(0x802, 0, statusBadSystemState, reasonNotRunning, nil)
	v.boot()
	v.refused(0x102, 0, statusBadSystemState, reasonRunning, nil)
	v.refused(0x754, 0, statusBadOpcode, reasonLink, nil)
	v.refused(0x101, 0, statusBadParam, reasonUID, func(in []byte) { prm.CmdUID.Set(in, 1) })
	out := v.try(0xfff, 0, 0, 0, nil)
	if status(prm.CmdStatus.Get(out)) != statusBadOpcode || prm.CmdSyndrome.Get(out) != 0xfff<<16|uint64(reasonOpcode) {
		t.Errorf("an unknown command: %s", hexStatus(out))
	}
}

// TestInfiniBandPort checks state, GIDs and P_Keys.
func TestInfiniBandPort(t *testing.T) {
	v := newDriver(t, func(c *Config) { c.LID = 7 })
	v.boot()
	c := prm.QueryHCAVportContextOutHCAVport.Bytes(v.run(0x762, 0, nil))
	if prm.HCAVportVportState.Get(c) != stateActive || prm.HCAVportLID.Get(c) != 7 ||
		prm.HCAVportPortGUID.Get(c) != testGUID {
		t.Errorf("state %d, LID %d, GUID %#x", prm.HCAVportVportState.Get(c), prm.HCAVportLID.Get(c),
			prm.HCAVportPortGUID.Get(c))
	}
	v.run(0x763, 0, func(in []byte) {
		c := prm.ModifyHCAVportContextInHCAVport.Bytes(in)
		prm.HCAVportCapMask1.Set(c, 1<<16)
		prm.HCAVportCapMask1FieldSelect.Set(c, 1<<16)
	})
	c = prm.QueryHCAVportContextOutHCAVport.Bytes(v.run(0x762, 0, nil))
	if got := prm.HCAVportCapMask1.Get(c); got != 1<<16 {
		t.Errorf("capability mask %#x", got)
	}
	v.loop.Run(func() { v.device.SetPort(false) })
	c = prm.QueryHCAVportContextOutHCAVport.Bytes(v.run(0x762, 0, nil))
	if got := prm.HCAVportVportState.Get(c); got != stateDown {
		t.Errorf("state %d of a port that is down", got)
	}
	out := v.try(0x764, 0, 0, 16, nil)
	gid := v.device.gid()
	if !bytes.Equal(out[16:], gid[:]) {
		t.Errorf("GID 0 is % x", out[16:])
	}
	out = v.try(0x765, 0, 0, 4*128, func(in []byte) {
		prm.QueryHCAVportPKeyInPKeyIndex.Set(in, wholeTable)
	})
	if prm.QueryHCAVportPKeyOutPKey.Get(out) != 0xffff || prm.QueryHCAVportPKeyOutPKey.At(1).Get(out) != 0 {
		t.Errorf("P_Keys % x", out[16:24])
	}
	v.refused(0x765, 0, statusBadParam, reasonIndex, func(in []byte) { prm.QueryHCAVportPKeyInPKeyIndex.Set(in, 128) })
	v.refused(0x764, 0, statusBadOutputLength, reasonLength, nil)
}

// TestReset checks that a reset removes everything of the driver and keeps the
// port's state.
func TestReset(t *testing.T) {
	v := newDriver(t, nil)
	v.boot()
	v.createEQ(4, 1<<eventCommand, 0)
	v.loop.Run(func() {
		v.device.SetPort(false)
		v.device.Reset()
	})
	if got := v.device.PagesHeld(); got != 0 {
		t.Errorf("%d pages are still held", got)
	}
	if n := len(v.device.EQs()); n != 0 {
		t.Errorf("%d event queues are left", n)
	}
	if got := v.read(0x14); got != 0x56 {
		t.Errorf("the command queue is still at %#x", got)
	}
	v.pages = make(map[uint64]bool)
	v.setQueue()
	v.boot()
	c := prm.QueryHCAVportContextOutHCAVport.Bytes(v.run(0x762, 0, nil))
	if got := prm.HCAVportVportState.Get(c); got != stateDown {
		t.Errorf("the port's state is %d after a reset", got)
	}
}
