package cm

import (
	"testing"
)

// TestMigrateOrder reads only one of two channels while an id moves between them, and checks that its events arrive in
// order, including those that were read just after it had moved.
func TestMigrateOrder(t *testing.T) {
	newRig(t)
	const n = 5000
	read, unread := newTalk(t), newTalk(t)
	i := read.id(PSTCP)
	ctx := limit(t)
	done, moved := make(chan struct{}), make(chan error, 1)
	go func() {
		var err error
		for k := 0; err == nil; k++ {
			if err = i.Migrate(unread.EventChannel); err == nil {
				err = i.Migrate(read.EventChannel)
			}
			select {
			case <-done:
				moved <- err
				return
			default:
			}
		}
		moved <- err
	}()
	go func() {
		defer close(done)
		for k := range n {
			if err := i.WriteEvent(0, uint64(k)); err != nil {
				t.Error(err)
			}
		}
	}()
	for k := range uint64(n) {
		if e := good(read.Next(ctx))(t); e.Arg != k {
			t.Fatalf("event %d, want %d", e.Arg, k)
		}
	}
	check(t, <-moved)
}
