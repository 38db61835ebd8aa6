package fabric

import (
	"bytes"
	"encoding/binary"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// A record is a frame of a capture.
type record struct {
	at    time.Time
	frame string
}

// readCapture reads a pcap file.
func readCapture(t *testing.T, b []byte) (all []record) {
	t.Helper()
	want := []byte{0x4D, 0x3C, 0xB2, 0xA1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x15, 0, 1, 0, 1, 0, 0, 0}
	if len(b) < len(want) || !bytes.Equal(b[:len(want)], want) {
		t.Fatalf("the file begins with % x, want % x", b[:min(len(b), len(want))], want)
	}
	for b = b[len(want):]; len(b) > 0; {
		le := binary.LittleEndian
		n := le.Uint32(b[8:])
		if m := le.Uint32(b[12:]); m != n {
			t.Fatalf("a frame of %d bytes has a length of %d", n, m)
		}
		all = append(all, record{time.Unix(int64(le.Uint32(b)), int64(le.Uint32(b[4:]))), string(b[16 : 16+n])})
		b = b[16+n:]
	}
	return all
}

func payloads(all []record) (p []string) {
	for _, r := range all {
		p = append(p, r.frame[ethernetHeader:])
	}
	return p
}

// TestCapture checks that a port's capture has what its device sees, and that
// of the switch what arrives.
func TestCapture(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := pair(t, Config{})
		var a, b, all bytes.Buffer
		var captures []*Capture
		capture := func(f *bytes.Buffer, ports ...string) {
			c, err := w.sw.Capture(f, ports...)
			if err != nil {
				t.Fatal(err)
			}
			captures = append(captures, c)
		}
		w.loop.Run(func() { capture(&a, "a"); capture(&b, "b"); capture(&all) })
		begin := time.Now()
		w.fault(Fault{Action: Drop, Port: "a", Skip: 1, Count: 1})
		w.fault(Fault{Action: Delay, Port: "a", Delay: 1234567891, Skip: 1, Count: 1})
		w.send(0, 1, "1", "2", "3")
		w.send(1, 0, "4")
		pass(2 * time.Second)
		w.expect([]string{"4"}, []string{"1", "3"})
		for _, c := range []struct {
			name string
			file *bytes.Buffer
			want []string
		}{{"a", &a, []string{"1", "2", "3", "4"}}, {"b", &b, []string{"1", "4", "3"}},
			{"all", &all, []string{"1", "2", "3", "4"}}} {
			if got := payloads(readCapture(t, c.file.Bytes())); !slices.Equal(got, c.want) {
				t.Errorf("capture of %s: %q, want %q", c.name, got, c.want)
			}
		}
		last := readCapture(t, b.Bytes())[2]
		if late := last.at.Sub(begin); late != 1234567891 {
			t.Errorf("the delayed frame came after %v", late)
		}
		if want := string(makeFrame(mac(1), mac(0), "3")); last.frame != want {
			t.Errorf("frame %q, want %q", last.frame, want)
		}
		w.loop.Run(func() {
			for _, c := range captures {
				if err := c.Stop(); err != nil {
					t.Error(err)
				}
			}
		})
		before := all.Len()
		w.send(0, 1, "5")
		if all.Len() != before || captures[2].Frames() != 4 {
			t.Error("a capture continues after Stop")
		}
	})
}

// limited is a writer that fails after a number of writes.
type limited int

var errFull = errors.New("disk full")

func (l *limited) Write(p []byte) (int, error) {
	if *l--; *l < 0 {
		return 0, errFull
	}
	return len(p), nil
}

func TestCaptureFails(t *testing.T) {
	w := pair(t, Config{})
	w.loop.Run(func() {
		l := limited(0)
		if _, err := w.sw.Capture(&l); !errors.Is(err, errFull) {
			t.Errorf("header: %v", err)
		}
		if _, err := w.sw.Capture(&l, "x"); !errors.Is(err, ErrUnknown) {
			t.Errorf("unknown port: %v", err)
		}
	})
	l := limited(2)
	w.loop.Run(func() {
		c, err := w.sw.Capture(&l)
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			w.ports[0].Frame(makeFrame(mac(1), mac(0), "x"))
		}
		if err := c.Stop(); !errors.Is(err, errFull) || c.Frames() != 1 || l != -1 {
			t.Errorf("%v after %d frames, %d writes too many", err, c.Frames(), -l)
		}
	})
	if len(w.got[1]) != 3 {
		t.Error("frames were lost with the capture")
	}
}
