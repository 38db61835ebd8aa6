package uverbs

import (
	"errors"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/driver"
	"github.com/goverbs/goverbs/internal/ioctl"
)

// TestExtensions checks that Close of a Context closes the objects of a provider before all others, the newest first,
// and that an object which the kernel does not destroy stays open.
func TestExtensions(t *testing.T) {
	r := newRig(t)
	var ended []string
	refuse := false
	extend := func(name string) driver.Extension {
		e, err := driver.Extend(r.c, "create a thing", driver.ExtensionConfig{Kind: name,
			Create: func(driver.Extension) (uint32, error) { return 7, nil },
			Destroy: func() error {
				if refuse {
					return unix.EBUSY
				}
				ended = append(ended, name)
				return nil
			},
			Retire: func() error { ended = append(ended, "memory of "+name); return nil }})
		check(t, err)
		return e
	}
	a, b, _ := extend("a"), extend("b"), extend("c")
	refuse = true
	if err := b.Close(); !errors.Is(err, ErrBusy) {
		t.Errorf("Close of an object that the kernel refuses to destroy: %v", err)
	}
	refuse = false
	check(t, b.With("use a thing", func() error { return nil }))
	if err := b.With("use a thing", func() error { return unix.EINVAL }); !errors.Is(err, ErrInvalid) {
		t.Errorf("an error of the kernel: %v", err)
	}
	check(t, b.Close())
	check(t, b.Close())
	if err := b.With("use a thing", func() error { return nil }); !errors.Is(err, ErrClosed) {
		t.Errorf("use of a closed object: %v", err)
	}
	before := len(r.k.Log())
	r.k.Before = nil
	check(t, r.c.Close())
	if want := []string{"b", "memory of b", "c", "memory of c", "a", "memory of a"}; !slices.Equal(ended, want) {
		t.Errorf("closed were %v, want %v; then %v", ended, want, r.k.Log()[before:])
	}
	if err := a.With("use a thing", func() error { return nil }); !errors.Is(err, ErrClosed) {
		t.Errorf("use of an object of a closed Context: %v", err)
	}
	if _, err := driver.Extend(r.c, "create a thing", driver.ExtensionConfig{Kind: "d"}); !errors.Is(err, ErrClosed) {
		t.Errorf("an object of a closed Context: %v", err)
	}
	err := driver.WithContext(r.c, "use the device", func(dev *ioctl.Device, impl any) error { return unix.EOPNOTSUPP })
	if !errors.Is(err, ErrNotSupported) {
		t.Errorf("an error of the device: %v", err)
	}
}
