package rdmacm_test

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/internal/rdmacm"
	"github.com/goverbs/goverbs/internal/sim/ioctltest"
	"github.com/goverbs/goverbs/internal/uapi"
	"golang.org/x/sys/unix"
)

// render prints the bytes of a command. It replaces addresses, which differ in each
// run, with what is stored there.
func render(c rdmacm.Call) string {
	h, frame := c.Header(), c.Frame()
	var b strings.Builder
	fmt.Fprintf(&b, "command %d, in %d, out %d\n", h.Cmd, h.In, h.Out)
	for off := 8; off < len(frame); off += 8 {
		word := frame[off:min(off+8, len(frame))]
		if len(word) == 8 {
			at := binary.NativeEndian.Uint64(word)
			if m := c.Memory(at, 1); at != 0 && m != nil {
				fmt.Fprintf(&b, "  %3d memory\n", off-8)
				continue
			}
		}
		if strings.Trim(string(word), "\x00") != "" || off+8 >= len(frame) {
			fmt.Fprintf(&b, "  %3d %s\n", off-8, hex.EncodeToString(word))
		}
	}
	return b.String()
}

// numbered returns bytes with the values of their indexes.
func numbered(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i + 1)
	}
	return b
}

func TestGoldenCommands(t *testing.T) {
	var log strings.Builder
	f, _ := fake(t, func(c rdmacm.Call) unix.Errno {
		log.WriteString(render(c))
		return 0
	})
	other, _ := fake(t, func(rdmacm.Call) unix.Errno { return 0 })
	conn := uapi.RdmaUcmConnParam{QpNum: 0x112233, Qkey: 0x44556677, PrivateDataLen: 3, Srq: 1,
		ResponderResources: 2, InitiatorDepth: 3,
		FlowControl: 1, RetryCount: 7, RnrRetryCount: 6, Valid: 1}
	copy(conn.PrivateData[:], "abc")
	const id = 0x0a0b0c0d
	for _, c := range []struct {
		name string
		run  func() error
	}{
		{"create", func() error { _, err := f.CreateID(0x1122334455667788, uapi.RDMA_PS_IB, 4); return err }},
		{"destroy", func() error { _, err := f.DestroyID(id); return err }},
		{"bind", func() error { return f.Bind(id, numbered(28)) }},
		{"resolve addr", func() error { return f.ResolveAddr(id, numbered(16), numbered(28), 2000) }},
		{"resolve addr from any", func() error { return f.ResolveAddr(id, nil, numbered(48), 2000) }},
		{"resolve route", func() error { return f.ResolveRoute(id, 2000) }},
		{"query addr", func() error { _, err := f.QueryAddr(id); return err }},
		{"query gid", func() error { _, err := f.QueryGID(id); return err }},
		{"query path", func() error { _, err := f.QueryPath(id); return err }},
		{"query service", func() error { _, err := f.QueryIBService(id); return err }},
		{"connect", func() error {
			return f.Connect(&uapi.RdmaUcmConnect{ConnParam: conn, Id: id, Ece: uapi.RdmaUcmEce{VendorId: 5, AttrMod: 6}})
		}},
		{"listen", func() error { return f.Listen(id, 128) }},
		{"accept", func() error {
			return f.Accept(&uapi.RdmaUcmAccept{Uid: 9, ConnParam: conn, Id: id, Ece: uapi.RdmaUcmEce{VendorId: 5, AttrMod: 6}})
		}},
		{"establish", func() error { return f.Accept(&uapi.RdmaUcmAccept{Id: id}) }},
		{"reject", func() error { return f.Reject(id, 28, numbered(148)) }},
		{"disconnect", func() error { return f.Disconnect(id) }},
		{"init qp attr", func() error { _, err := f.InitQPAttr(id, 2); return err }},
		{"event", func() error { return f.NextEvent(new(uapi.RdmaUcmEventResp)) }},
		{"set option", func() error { return f.SetOption(id, 0, 1, []byte{1, 0, 0, 0}) }},
		{"notify", func() error { return f.Notify(id, 4) }},
		{"join", func() error { _, err := f.JoinMulticast(id, 0x1122334455667788, numbered(16), 1); return err }},
		{"leave", func() error { _, err := f.LeaveMulticast(id); return err }},
		{"resolve service", func() error {
			s := uapi.RdmaUcmIbService{ServiceId: 1, Flags: 2}
			copy(s.ServiceName[:], "service")
			return f.ResolveIBService(id, &s)
		}},
		{"write event", func() error { return f.WriteCMEvent(id, rdmacm.EventUser, -5, 0x1122334455667788) }},
	} {
		fmt.Fprintf(&log, "%s: ", c.name)
		if err := c.run(); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	ioctltest.Golden(t, "commands", log.String())
	log.Reset()
	if _, err := f.MigrateID(id, other); err != nil {
		t.Error(err)
	}
	// The descriptor's number varies.
	if got, want := log.String(), "command 18, in 16, out 4\n    0 memory\n    8 0d0c0b0a"; !strings.HasPrefix(got, want) {
		t.Errorf("migrate: %s", got)
	}
}

// The commands have the sizes that the kernel defines.
func TestSizes(t *testing.T) {
	want := map[uint32][2]uint16{0: {24, 4}, 1: {16, 4}, 20: {136, 0}, 21: {272, 0}, 4: {8, 0}, 19: {16, 280}, 6: {288, 0},
		7: {8, 0}, 8: {296, 0},
		9: {264, 0}, 10: {4, 0}, 11: {16, 144}, 12: {8, 336}, 14: {24, 0}, 15: {8, 0}, 17: {16, 4}, 18: {16, 4}, 22: {152, 4},
		23: {88, 0}, 24: {320, 0}}
	seen := map[uint32]bool{}
	f, _ := fake(t, func(c rdmacm.Call) unix.Errno {
		h := c.Header()
		seen[h.Cmd] = true
		if got := [2]uint16{h.In, h.Out}; got != want[h.Cmd] || len(c.Frame()) != 8+int(h.In) {
			t.Errorf("command %d: in and out %v, want %v; %d bytes written", h.Cmd, got, want[h.Cmd], len(c.Frame()))
		}
		return 0
	})
	everyCommand(f)
	if len(seen) != len(want) {
		t.Errorf("%d commands, want %d", len(seen), len(want))
	}
}

// everyCommand issues each command once and returns the errors.
func everyCommand(f *rdmacm.File) (errs []error) {
	add := func(err error) { errs = append(errs, err) }
	take := func(_ uint32, err error) { add(err) }
	take(f.CreateID(1, uapi.RDMA_PS_TCP, 2))
	take(f.DestroyID(0))
	add(f.Bind(0, nil))
	add(f.ResolveAddr(0, nil, nil, 0))
	add(f.ResolveRoute(0, 0))
	_, err := f.QueryAddr(0)
	add(err)
	add(f.Connect(&uapi.RdmaUcmConnect{}))
	add(f.Listen(0, 0))
	add(f.Accept(&uapi.RdmaUcmAccept{}))
	add(f.Reject(0, 0, nil))
	add(f.Disconnect(0))
	_, err = f.InitQPAttr(0, 0)
	add(err)
	add(f.NextEvent(new(uapi.RdmaUcmEventResp)))
	add(f.SetOption(0, 0, 0, nil))
	add(f.Notify(0, 0))
	take(f.LeaveMulticast(0))
	take(f.MigrateID(0, f))
	take(f.JoinMulticast(0, 0, nil, 0))
	add(f.ResolveIBService(0, &uapi.RdmaUcmIbService{}))
	add(f.WriteCMEvent(0, 0, 0, 0))
	return errs
}
