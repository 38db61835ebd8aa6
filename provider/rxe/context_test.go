package rxe

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/driver"
	"github.com/goverbs/goverbs/internal/ioctl"
	"github.com/goverbs/goverbs/internal/provider"
	"github.com/goverbs/goverbs/internal/sim/leaktest"
	"github.com/goverbs/goverbs/internal/uapi"
	"github.com/goverbs/goverbs/uverbs"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

func TestOpen(t *testing.T) {
	var d rxeProvider
	if low, high := d.ABI(); d.DriverID() != 14 || low != 1 || high != 2 {
		t.Errorf("driver %d, ABI %d to %d", d.DriverID(), low, high)
	}
	pretend(t, "6.0.0")
	refuse := func(in, out []byte) (driver.Reply, error) {
		if len(in)+len(out) != 0 {
			t.Errorf("GET_CONTEXT with a vendor part of %d and %d bytes", len(in), len(out))
		}
		return driver.Reply{}, unix.EPERM
	}
	if _, err := d.Open(nil, refuse); !errors.Is(err, unix.EPERM) {
		t.Errorf("Open: %v", err)
	}
	c, err := d.Open(nil, func(_, _ []byte) (driver.Reply, error) { return driver.Reply{}, nil })
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Retire(); err != nil {
		t.Error(err)
	}
}

// create returns a create command that replies with resp.
func create[T any](t *testing.T, resp *T, r driver.Reply, err error) driver.Command {
	return func(in, out []byte) (driver.Reply, error) {
		if len(in) != 0 || len(out) != ioctl.SizeOf[T]() {
			t.Errorf("vendor part of %d and %d bytes, want 0 and %d", len(in), len(out), ioctl.SizeOf[T]())
		}
		copy(out, ioctl.BytesOf(resp))
		return r, err
	}
}

func TestCreateQP(t *testing.T) {
	z, ctx := newResizer(t)
	_, sq := z.offer(15, 256, false)
	_, rq := z.offer(15, 128, false)
	_, small := z.offer(15, 64, false)
	nowhere := uapi.Mminfo{Offset: 1, Size: 4096}
	none := uapi.Mminfo{}
	want := driver.Reply{Handle: 5, Number: 17, Cap: driver.Cap(testCap(15, 15, 2, 48))}
	for _, c := range []struct {
		name   string
		sq, rq uapi.Mminfo
		err    error
	}{
		{"both queues", sq, rq, nil},
		{"receives from an SRQ", sq, none, nil},
		{"send queue out of reach", nowhere, rq, unix.EINVAL},
		{"receive queue out of reach", sq, nowhere, unix.EINVAL},
		{"send queue of elements too small", small, rq, uverbs.ErrABI},
	} {
		resp := &uapi.RxeCreateQpResp{SqMi: c.sq, RqMi: c.rq}
		q, reply, err := ctx.CreateQP(&uverbs.QPConfig{}, provider.QPEnv{}, create(t, resp, want, nil))
		if !errors.Is(err, c.err) || reply != want {
			t.Errorf("%s: %+v, %v", c.name, reply, err)
		}
		if err == nil {
			n, err := q.PostRecv([]uverbs.RecvWR{{}})
			if c.rq.Size == 0 && !errors.Is(err, uverbs.ErrSRQ) || c.rq.Size > 0 && n != 1 {
				t.Errorf("%s: PostRecv: %d, %v", c.name, n, err)
			}
			if err := q.Retire(true); err != nil {
				t.Errorf("%s: Retire: %v", c.name, err)
			}
		}
	}
	if _, _, err := ctx.CreateQP(&uverbs.QPConfig{}, provider.QPEnv{},
		create(t, &uapi.RxeCreateQpResp{}, want, unix.ENOMEM)); !errors.Is(err, unix.ENOMEM) {
		t.Errorf("refused: %v", err)
	}
}

func ofCQ(create driver.Command) driver.CQCommand {
	return func(in, out []byte, _ ...driver.Attr) (driver.Reply, error) { return create(in, out) }
}

func TestCreateCQ(t *testing.T) {
	z, ctx := newResizer(t)
	k, mi := z.offer(15, 64, true)
	want := driver.Reply{Handle: 5, Entries: 15}
	q, reply, err := ctx.CreateCQ(&driver.CQConfig{}, ofCQ(create(t, &uapi.RxeCreateCqResp{Mi: mi}, want, nil)))
	if err != nil || reply != want {
		t.Fatalf("CreateCQ: %+v, %v", reply, err)
	}
	k.advance()
	if !q.Ready() {
		t.Error("the CQ does not see the kernel's ring")
	}
	if err := q.Retire(true); err != nil {
		t.Error(err)
	}
	if _, _, err := ctx.CreateCQ(&driver.CQConfig{}, ofCQ(create(t, &uapi.RxeCreateCqResp{}, want,
		nil))); !errors.Is(err, unix.EINVAL) {
		t.Errorf("CreateCQ without an offer: %v", err)
	}
	if _, _, err := ctx.CreateCQ(&driver.CQConfig{}, ofCQ(create(t, &uapi.RxeCreateCqResp{}, want,
		unix.EINVAL))); !errors.Is(err, unix.EINVAL) {
		t.Errorf("refused: %v", err)
	}
}
