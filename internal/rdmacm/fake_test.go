package rdmacm_test

import (
	"os"
	"testing"

	"github.com/goverbs/goverbs/internal/leak"
	"github.com/goverbs/goverbs/internal/rdmacm"
	"github.com/goverbs/goverbs/internal/sim/errtest"
	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) {
	leak.Enable()
	code := m.Run()
	for _, l := range leak.Live() {
		os.Stderr.WriteString("left: " + l.String() + "\n")
		code = 1
	}
	os.Exit(code)
}

// kernelFunc is a Kernel that calls a function for each command.
type kernelFunc func(rdmacm.Call) unix.Errno

func (f kernelFunc) Command(c rdmacm.Call) unix.Errno { return f(c) }
func (kernelFunc) Closed()                            {}

// fake opens a file on k. Writing to ready makes NextEvent ask.
func fake(t testing.TB, k kernelFunc) (f *rdmacm.File, ready *os.File) {
	t.Helper()
	var p [2]int
	must(t, unix.Pipe2(p[:], unix.O_CLOEXEC))
	ready = os.NewFile(uintptr(p[1]), "ready")
	f, err := rdmacm.NewFake(p[0], k)
	must(t, err)
	t.Cleanup(func() {
		must(t, f.Close())
		must(t, ready.Close())
	})
	return f, ready
}

var must = errtest.Check
