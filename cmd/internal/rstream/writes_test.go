package rstream

import "testing"

// TestLateBytes checks that data which follows the marker is no error, and that other data is.
func TestLateBytes(t *testing.T) {
	w := &writer{end: &end{verify: true}}
	b := []byte{9, 1, 2}
	go func() { b[0] = 0 }()
	if err := w.verify(b); err != nil || w.received != 3 || w.total != 3 {
		t.Errorf("late byte: %v, next %d, total %d", err, w.received, w.total)
	}
	if err := w.verify([]byte{3, 9}); err == nil || err.Error() != "data verification failed byte 4" {
		t.Errorf("wrong byte: %v", err)
	}
}
