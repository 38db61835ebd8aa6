package uverbs

import (
	"errors"
	"io"
	"testing"
)

// TestDMReaderAt checks ReadAt against the rules of io.ReaderAt: fewer bytes than asked for have an error.
func TestDMReaderAt(t *testing.T) {
	r := newRig(t)
	dm := good(r.c.AllocDM(DMConfig{Size: 64}))(t)
	for _, x := range []struct {
		n    int
		off  int64
		want int
		err  error
	}{{0, 0, 0, nil}, {64, 0, 64, nil}, {68, 0, 64, io.EOF}, {8, 60, 4, io.EOF}, {4, 64, 0, io.EOF}, {0, 64, 0, nil},
		{4, 68, 0, ErrInvalid}} {
		if n, err := dm.ReadAt(make([]byte, x.n), x.off); n != x.want || !errors.Is(err, x.err) {
			t.Errorf("%d bytes at %d: %d, %v, want %d, %v", x.n, x.off, n, err, x.want, x.err)
		}
	}
	all := good(io.ReadAll(io.NewSectionReader(dm, 0, 1<<20)))(t)
	if len(all) != 64 {
		t.Errorf("ReadAll returns %d bytes", len(all))
	}
}

// A hookedDM calls a function in the middle of each copy.
type hookedDM struct {
	fakeDM
	hook func()
}

func (d hookedDM) ReadAt(p []byte, off int) {
	d.hook()
	d.fakeDM.ReadAt(p, off)
}

func (d hookedDM) WriteAt(p []byte, off int) {
	d.hook()
	d.fakeDM.WriteAt(p, off)
}

// TestDMGoneUnderCopy ends the memory during a copy and before one. The bytes may be zero pages then, so ReadAt and
// WriteAt must report it.
func TestDMGoneUnderCopy(t *testing.T) {
	for _, x := range []struct {
		name string
		end  func(t *testing.T, d *DM)
		want error
	}{
		{"closed", func(t *testing.T, d *DM) { check(t, d.Close()) }, ErrClosed},
		{"Context closed", func(t *testing.T, d *DM) { check(t, d.ctx.Close()) }, ErrClosed},
		{"device gone", func(_ *testing.T, d *DM) { d.ctx.markDeviceGone() }, ErrDeviceGone},
	} {
		for name, copies := range map[string]func(*DM) (int, error){
			"ReadAt":  func(d *DM) (int, error) { return d.ReadAt(make([]byte, 8), 0) },
			"WriteAt": func(d *DM) (int, error) { return d.WriteAt(make([]byte, 8), 0) },
		} {
			t.Run(x.name+"/"+name, func(t *testing.T) {
				r := newRig(t)
				dm := good(r.c.AllocDM(DMConfig{Size: 64}))(t)
				dm.impl = hookedDM{dm.impl.(fakeDM), func() { x.end(t, dm) }}
				for _, when := range []string{"during", "before"} {
					if n, err := copies(dm); n != 0 || !errors.Is(err, x.want) {
						t.Errorf("%s the copy: %d, %v, want %v", when, n, err, x.want)
					}
				}
			})
		}
	}
}
