package cm

import (
	"testing"

	"github.com/goverbs/goverbs/uverbs"
	"golang.org/x/sys/unix"
)

// TestResolveService resolves a service on InfiniBand.
func TestResolveService(t *testing.T) {
	r := newRig(t)
	r.Set(func() { r.Services = true })
	s := newSyncID(t, PSIB)
	check(t, s.Bind(at(here, 0)))
	_, err := s.Services()
	is(t, "before it is resolved", err, unix.ENODATA)
	check(t, s.ResolveService(limit(t), "name", 0))
	if e := s.Event(); e.Type != EventAddrinfoResolved {
		t.Errorf("%+v", e)
	}
	if all := good(s.Services())(t); len(all) != 1 {
		t.Errorf("%d services, want 1", len(all))
	}
	is(t, "again", s.ResolveService(limit(t), "name", 0), uverbs.ErrInvalid)
}

// TestResolveServiceErrors checks that the error has the real cause, although the kernel returns EINVAL for most.
func TestResolveServiceErrors(t *testing.T) {
	bind := func(t *testing.T, i *ID) { check(t, i.Bind(at(here, 0))) }
	listen := func(t *testing.T, i *ID) {
		bind(t, i)
		check(t, i.Listen(0))
	}
	for name, tc := range map[string]struct {
		prepare              func(*testing.T, *ID)
		services, noServices bool
		kind                 error
		want                 string
	}{
		"not bound": {
			services: true,
			kind:     uverbs.ErrInvalid,
			want: "cm: resolve service id: the id is not bound to a device:" +
				" Bind it to a device's address first (EINVAL)",
		},
		"listens": {
			prepare:  listen,
			services: true,
			kind:     uverbs.ErrInvalid,
			want: "cm: resolve service 192.0.2.1:40001: the id's address or a service is resolved already," +
				" or the id listens: call ResolveService once, between Bind and ResolveAddr (EINVAL)",
		},
		"RoCE": {
			prepare: bind,
			kind:    uverbs.ErrNotSupported,
			want: "cm: resolve service 192.0.2.1:40001: the subnet administrator of an InfiniBand fabric resolves" +
				" services: bind the id to a device on such a fabric (ENOTSUP)",
		},
		"an old kernel": {
			prepare:    bind,
			noServices: true,
			kind:       uverbs.ErrNotSupported,
			want: "cm: resolve service 192.0.2.1:40001: the kernel cannot resolve services:" +
				" Linux 6.18 and newer can (ENOSYS)",
		},
		"an old kernel, not bound": {
			noServices: true,
			kind:       uverbs.ErrNotSupported,
			want: "cm: resolve service id: the kernel cannot resolve services:" +
				" Linux 6.18 and newer can (ENOSYS)",
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.Set(func() { r.Services, r.NoServices = tc.services, tc.noServices })
			s := newSyncID(t, PSTCP)
			if tc.prepare != nil {
				tc.prepare(t, s.ID)
			}
			err := s.ID.ResolveService("name", 0)
			is(t, name, err, tc.kind)
			if err != nil && err.Error() != tc.want {
				t.Errorf("%v\nwant %s", err, tc.want)
			}
		})
	}
}
