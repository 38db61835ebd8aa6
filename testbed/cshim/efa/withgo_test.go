//go:build vm

package efa_test

import (
	"encoding/hex"
	"fmt"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/internal/sim/fakeefa"
	"github.com/goverbs/goverbs/testbed/cshim/compare"
	"github.com/goverbs/goverbs/uverbs"
)

// A mixture is C's program on one device and this library on another.
type mixture struct {
	t          *testing.T
	c          *compare.CSide
	g          *compare.GoSide
	mem        []byte
	mr         *uverbs.MR
	addr       uint64 // of C's memory
	lkey, rkey uint32
	cQPN       uint32
	id         uint64
}

func newMixture(t *testing.T, typ uverbs.QPType) *mixture {
	f := fakeefa.New(t, 2, fakeefa.Default)
	m := &mixture{t: t, c: program.NewC(t, f.Device(0).Name()),
		g: program.NewGo(t, f.Device(1).Name()), mem: make([]byte, 4096)}
	size := compare.Size{Type: typ, Sends: 16, Recvs: 16, SGEs: 2, RecvSGEs: 2, Inline: 32}
	m.g.Create(size, 0)
	m.scan(m.c.Create(size, 0), "QP %d,", &m.cQPN)
	m.scan(m.c.Do("mr"), "MR %d %d %d", &m.addr, &m.lkey, &m.rkey)
	m.mr = compare.Must(m.g.PD.RegMR(m.mem, uverbs.LocalWrite|uverbs.RemoteRead|uverbs.RemoteWrite))(t)
	gid := compare.Must(m.g.PD.Context().GIDs(1))(t)[0].GID
	m.c.Do("address %s", hex.EncodeToString(gid[:]))
	other := gid
	other[15] = 1 // of device 0
	m.g.AH = compare.Must(m.g.PD.CreateAH(uverbs.AHAttr{IsGlobal: true, DGID: other, Port: 1}))(t)
	return m
}

func (m *mixture) scan(text, format string, args ...any) {
	m.t.Helper()
	if _, err := fmt.Sscanf(text, format, args...); err != nil {
		m.t.Fatalf("%q: %v", text, err)
	}
}

// said checks what a program says.
func (m *mixture) said(got, want string) {
	m.t.Helper()
	if !strings.HasPrefix(got, want) {
		m.t.Errorf("it says %q, want %q", got, want)
	}
}

// fromGo posts a request of Go to C's QP and polls its completion.
func (m *mixture) fromGo(r uverbs.SendWR) {
	m.t.Helper()
	m.id++
	r.WRID, r.Flags, r.QPN, r.QKey = m.id, uverbs.Signaled, m.cQPN, 17
	m.said(m.g.Send([]uverbs.SendWR{r}, false), "posted 1, failed 0")
	m.said(m.g.Poll(4), fmt.Sprintf("polled 1; %d 0 ", r.WRID))
}

func (m *mixture) fromC(r uverbs.SendWR) {
	m.t.Helper()
	m.id++
	r.WRID, r.Flags, r.QPN, r.QKey = m.id, uverbs.Signaled, m.g.QP.QPN(), 17
	m.said(m.c.Send([]uverbs.SendWR{r}, r.Opcode != uverbs.OpSend), "posted 1, failed 0")
	m.said(m.c.Poll(4), fmt.Sprintf("polled 1; %d 0 ", r.WRID))
}

// shows checks n bytes of C's memory.
func (m *mixture) shows(at int, want string) {
	m.t.Helper()
	m.said(m.c.Do("show %d %d", at, len(want)), hex.EncodeToString([]byte(want)))
}

func (m *mixture) holds(at int, want string) {
	m.t.Helper()
	if got := string(m.mem[at:][:len(want)]); got != want {
		m.t.Errorf("Go's memory holds %q, want %q", got, want)
	}
}

// C and Go send to each other, and read and write each other's memory.
func TestWithGo(t *testing.T) {
	for _, typ := range []uverbs.QPType{uverbs.SRD, uverbs.UD} {
		t.Run(typ.String(), func(t *testing.T) {
			m := newMixture(t, typ)
			grh := 0
			if typ == uverbs.UD {
				grh = uverbs.GRHLen
			}
			copy(m.mem, "from Go")
			room := []uverbs.SGE{{Addr: m.addr + 1000, Length: 100, LKey: m.lkey}}
			m.said(m.c.Recv([]uverbs.RecvWR{{WRID: 1, SGL: room}}), "posted 1, failed 0")
			m.fromGo(uverbs.SendWR{Opcode: uverbs.OpSendImm, Imm: 77, SGL: []uverbs.SGE{m.mr.SGE(0, 5), m.mr.SGE(5, 2)}})
			m.said(m.c.Poll(4), fmt.Sprintf("polled 1; 1 0 0 %d 128 %d %d ", m.cQPN, 7+grh, m.g.QP.QPN()))
			m.shows(1000+grh, "from Go")

			m.said(m.g.Recv([]uverbs.RecvWR{{WRID: 2, SGL: []uverbs.SGE{m.mr.SGE(1000, 100)}}}), "posted 1, failed 0")
			received := []uverbs.SGE{{Addr: m.addr + 1000 + uint64(grh), Length: 7, LKey: m.lkey}}
			m.fromC(uverbs.SendWR{Opcode: uverbs.OpSend, SGL: received})
			m.said(m.g.Poll(4), fmt.Sprintf("polled 1; 2 0 0 %d 128 %d %d ", m.g.QP.QPN(), 7+grh, m.cQPN))
			m.holds(1000+grh, "from Go")
			if typ == uverbs.SRD {
				m.memory()
			}
			m.c.End()
		})
	}
}

// memory reads and writes.
func (m *mixture) memory() {
	copy(m.mem[2000:], "written by Go")
	m.fromGo(uverbs.SendWR{Opcode: uverbs.OpWrite, RemoteAddr: m.addr + 2000, RKey: m.rkey,
		SGL: []uverbs.SGE{m.mr.SGE(2000, 13)}})
	m.shows(2000, "written by Go")
	m.fromGo(uverbs.SendWR{Opcode: uverbs.OpRead, RemoteAddr: m.addr + 2000, RKey: m.rkey,
		SGL: []uverbs.SGE{m.mr.SGE(3000, 7)}})
	m.holds(3000, "written\x00")
	mine := func(at, n int) []uverbs.SGE {
		return []uverbs.SGE{{Addr: m.addr + uint64(at), Length: uint32(n), LKey: m.lkey}}
	}
	m.fromC(uverbs.SendWR{Opcode: uverbs.OpRead, RemoteAddr: m.mr.Addr() + 2000, RKey: m.mr.RKey(), SGL: mine(3000, 10)})
	m.shows(3000, "written by")
	m.said(m.g.Recv([]uverbs.RecvWR{{WRID: 3, SGL: []uverbs.SGE{m.mr.SGE(0, 1)}}}), "posted 1, failed 0")
	m.fromC(uverbs.SendWR{Opcode: uverbs.OpWriteImm, Imm: 5, RemoteAddr: m.mr.Addr() + 3500, RKey: m.mr.RKey(),
		SGL: mine(3000, 10)})
	m.said(m.g.Poll(4), fmt.Sprintf("polled 1; 3 0 0 %d 129 10 %d ", m.g.QP.QPN(), m.cQPN))
	m.holds(3500, "written by")
}
