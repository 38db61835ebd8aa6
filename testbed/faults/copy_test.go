//go:build vm

package faults

import (
	"strings"
	"syscall"
	"testing"

	"github.com/goverbs/goverbs/testbed/vm/program"
)

// Files of a copy.
const (
	source  = "/tmp/source"
	short   = "/tmp/short"
	target  = "/tmp/target"
	endless = "/tmp/endless" // more than is copied before a fault
)

// testCopy copies files while something happens.
func (s *services) testCopy(t *testing.T) {
	s.ends[1].output(t, "sh", "-c", "head -c 33554432 /dev/urandom > "+source+"; head -c 4194304 "+
		source+" > "+short+"; truncate -s 2G "+endless)
	defer s.ends[1].output(t, "rm", source, short, endless)
	t.Run("loss", func(t *testing.T) {
		s.skipRepeat(t, "loss")
		s.devices.lose(t, 0.3)
		s.arrives(t, s.beginCopy(t, short), short)
	})
	t.Run("SIGSTOP", func(t *testing.T) {
		s.skipRepeat(t, "SIGSTOP")
		for side, name := range []string{"receiver", "sender"} {
			t.Run(name, func(t *testing.T) {
				c := s.beginCopy(t, source)
				s.begun(t)
				signal(t, c[side], syscall.SIGSTOP)
				if e := s.ends[0]; e.guest.Command("test", "-e", target).Run() == nil {
					t.Error("the copy has ended before the signal")
				}
				stand(t, c[side])
				s.arrives(t, c, source)
			})
		}
	})
	const ended = "the connection has ended"
	for fault, end := range map[string]func(t *testing.T, c [2]*process){
		"SIGKILL of the receiver": func(t *testing.T, c [2]*process) {
			s.kill(t, c[0])
			fails(t, c[1], ended)
		},
		"SIGKILL of the sender": func(t *testing.T, c [2]*process) {
			s.kill(t, c[1])
			fails(t, c[0], ended)
		},
		"removal of the receiver's device": func(t *testing.T, c [2]*process) {
			s.devices.remove(t)
			fails(t, c[0], gone...)
			fails(t, c[1], ended)
			s.devices.restore(t)
		},
	} {
		t.Run(fault, func(t *testing.T) {
			c := s.beginCopy(t, endless)
			s.begun(t)
			end(t, c)
			part := "" // that a receiver leaves that was killed
			if fault == "SIGKILL of the receiver" {
				part = "target.part"
			}
			left := s.ends[0].output(t, "sh", "-c", "cd /tmp; ls target* 2>/dev/null || true")
			if strings.TrimSpace(left) != part {
				t.Errorf("the receiver leaves %q, want %q", left, part)
			}
			s.arrives(t, s.beginCopy(t, short), short) // both restarted
		})
	}
}

// beginCopy starts the receiver and the sender of a file.
func (s *services) beginCopy(t *testing.T, name string) (c [2]*process) {
	t.Helper()
	at := s.at()
	c[0] = s.start(t, 0, "rcp", "-l", at, "recv", target)
	if _, ok := c[0].await("waiting at", 1); !ok {
		t.Fatal(c[0])
	}
	c[1] = s.start(t, 1, "rcp", "send", name, at)
	return c
}

// begun waits until the receiver has a part of the file.
func (s *services) begun(t *testing.T) {
	t.Helper()
	program.Run(t, s.ends[0].guest, "timeout", "60", "sh", "-c", "until test -s "+target+".part; do :; done")
}

// arrives waits for both sides, and compares the target with the file that was sent.
func (s *services) arrives(t *testing.T, c [2]*process, name string) {
	t.Helper()
	says(t, c[1], "the receiver agrees")
	says(t, c[0], "")
	var sums [2]string
	for i, name := range []string{target, name} {
		sums[i], _, _ = strings.Cut(s.ends[i].output(t, "sha256sum", name), " ")
	}
	if sums[0] != sums[1] {
		t.Errorf("the copy is another file: %v", sums)
	}
	s.ends[0].output(t, "rm", target)
}
