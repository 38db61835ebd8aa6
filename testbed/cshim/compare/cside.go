package compare

import (
	"fmt"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"github.com/goverbs/goverbs/testbed/cshim"
	"github.com/goverbs/goverbs/uverbs"
)

// A CSide is C's program: play/play.c.
type CSide struct {
	*cshim.Script
	program *Program
}

// play returns the path of C's program.
func play() string {
	_, here, _, _ := runtime.Caller(0)
	return filepath.Join(filepath.Dir(here), "play/play.c")
}

func text(n int) string { return strconv.Itoa(n) }

// Create implements Side, as do the methods below.
func (c *CSide) Create(s Size, psn uint32) string {
	said := c.Do("qp %s %d %d %d %d %d %d %d %d", strings.ToLower(s.Type.String()), s.Sends, s.Recvs, s.SGEs, s.RecvSGEs,
		s.Inline, number(s.SignalAll), psn, number(s.Shared)*s.Recvs)
	if !c.program.Sizes {
		said, _, _ = strings.Cut(said, ",")
	}
	return said
}

func sgeText(list []uverbs.SGE) (s string) {
	for _, e := range list {
		s += fmt.Sprintf(" %d %d %d", e.Addr, e.Length, e.LKey)
	}
	return s
}

// flagsOf returns C's flags.
func flagsOf(f uverbs.SendFlags) (v int) {
	for flag, bit := range map[uverbs.SendFlags]int{uverbs.Fence: 1, uverbs.Signaled: 2, uverbs.Solicited: 4} {
		if f&flag != 0 {
			v |= bit
		}
	}
	return v
}

// Send posts.
func (c *CSide) Send(list []uverbs.SendWR, batch bool) string {
	for _, w := range list {
		n := len(w.SGL)
		if w.Inline != nil {
			n = len(w.Inline)
		}
		c.Write("send %d %d %d %d %d %d %d %d %d %d %d %d%s", w.Opcode, flagsOf(w.Flags), w.WRID, w.Imm|w.InvalidateRKey,
			w.RemoteAddr, w.RKey, w.CompareAdd, w.Swap, w.QPN, w.QKey, number(w.Inline != nil), n, sgeText(w.SGL))
	}
	if batch && c.program.Batches {
		return c.Do("batch")
	}
	return c.Do("post")
}

// Recv posts.
func (c *CSide) Recv(list []uverbs.RecvWR) string {
	for _, r := range list {
		c.Write("recv %d %d%s", r.WRID, len(r.SGL), sgeText(r.SGL))
	}
	return c.Do("postrecv")
}

// Poll polls.
func (c *CSide) Poll(n int) string { return c.Do("poll %d", n) }

// Arm arms the CQ.
func (c *CSide) Arm(solicited bool) string { return c.Do("arm %d", number(solicited)) }

// Event reads an event.
func (c *CSide) Event() string { return c.Do("event") }

// Reset moves the QP to RESET and back to RTS.
func (c *CSide) Reset(psn uint32) string { return c.Do("reset %d", psn) }

// Err moves the QP to ERR.
func (c *CSide) Err() string { return c.Do("error") }

// Close closes the QP.
func (c *CSide) Close() string { return c.Do("close") }

// Resize resizes the CQ.
func (c *CSide) Resize(entries int) string { return c.Do("resize %d", entries) }
