// Package compare executes the same random steps in C and in Go, each on a device that records what programs write to
// it, and compares what the programs observe and what the devices are given.
package compare

import (
	"testing"

	"github.com/goverbs/goverbs/testbed/cshim"
	"github.com/goverbs/goverbs/uverbs"
)

// A Program describes what the two programs do on the devices of a provider.
type Program struct {
	Driver string // C's provider, as in libefa.so
	Source string // a C file that includes play/play.c, or "" for that file
	Libs   []string
	GID    int // entry of the GID table
	// Batches: C posts batches with ibv_wr_start(3), else with ibv_post_send(3).
	Batches bool
	// Sizes compares the sizes of QPs; else Go's are those that were asked for.
	Sizes bool
	// Whole compares all fields of completions with errors, too.
	Whole bool
	// As, if not nil, makes a completion of Go what C reports.
	As func(*uverbs.WC)
}

// A Size describes a QP.
type Size struct {
	Type                                 uverbs.QPType
	Sends, Recvs, SGEs, RecvSGEs, Inline int
	SignalAll                            bool
	Shared                               bool // the receives are those of an SRQ
}

// A Side is a program that executes steps on a device and says what it observes: [CSide] or [GoSide].
type Side interface {
	Create(size Size, psn uint32) string
	// Send posts requests one by one or as a batch. Inline data are from [Data].
	Send(list []uverbs.SendWR, batch bool) string
	Recv(list []uverbs.RecvWR) string
	Poll(n int) string
	Arm(solicited bool) string
	// Event reads an event.
	Event() string
	Reset(psn uint32) string
	// Err moves the QP to ERR. Close closes it.
	Err() string
	Close() string
	Resize(entries int) string
}

// entries is the size of the CQ.
const entries = 100

// Data is the memory that C's program sends inline, and registers in a step "mr".
var Data = func() (b [256]byte) {
	for i := range b {
		b[i] = byte(i*7 + 1)
	}
	return b
}()

func number(b bool) int {
	if b {
		return 1
	}
	return 0
}

// NewC starts C's program on a device.
func (p *Program) NewC(t testing.TB, device string) *CSide {
	h := cshim.On(t, device, p.Driver)
	source := p.Source
	if source == "" {
		source = play()
	}
	program := h.Compile(source, p.Libs...)
	return &CSide{h.Script(program, device, text(p.GID), text(number(p.Whole)), text(number(p.Batches))), p}
}
