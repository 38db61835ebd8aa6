package uverbs

import (
	"errors"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// undone notes the order of calls.
type undone struct {
	calls []string
	err   error // of Retire
}

func (u *undone) Retire(inUse bool) error {
	u.calls = append(u.calls, "retire")
	return u.err
}

// The provider's part of a queue that was not created is retired after the kernel's object, and not while that exists.
func TestUndo(t *testing.T) {
	failed := errors.New("no queue")
	for name, c := range map[string]struct {
		exists          bool
		destroy, retire error
		want            []string
	}{
		"no command":      {false, nil, nil, []string{"retire"}},
		"a later step":    {true, nil, nil, []string{"destroy", "retire"}},
		"destroy fails":   {true, unix.EBUSY, nil, []string{"destroy"}},
		"retirement, too": {true, nil, unix.EINVAL, []string{"destroy", "retire"}},
	} {
		part := &undone{err: c.retire}
		o := &object{exists: c.exists}
		err := o.undo(failed, func() error {
			part.calls = append(part.calls, "destroy")
			return c.destroy
		}, part)
		if !errors.Is(err, failed) || c.retire != nil && !errors.Is(err, c.retire) || !slices.Equal(part.calls, c.want) {
			t.Errorf("%s: %v, calls %v, want %v", name, err, part.calls, c.want)
		}
	}
	if err := (&object{exists: true}).undo(failed, func() error { return nil }, nil); err != failed {
		t.Errorf("without a part: %v", err)
	}
}
