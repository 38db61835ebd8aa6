package uverbs

import (
	"errors"
	"testing"

	"github.com/goverbs/goverbs/internal/leak"
	"golang.org/x/sys/unix"
)

// TestEveryCommandFails checks that after any command fails no partly created object is left, and
// that the objects created before can be closed.
func TestEveryCommandFails(t *testing.T) {
	for _, errno := range []unix.Errno{unix.ENOMEM, unix.EINVAL, unix.EIO} {
		made := false
		for n := 1; !made; n++ {
			if n > 100 {
				t.Fatal("the program does not end")
			}
			made = failAt(t, n, errno)
		}
	}
}

// failAt runs a program of every create command in which the n-th command fails. It reports whether
// the program ended before that command.
func failAt(t *testing.T, n int, errno unix.Errno) bool {
	t.Helper()
	tickets := len(leak.Live())
	r := bareRig()
	r.k.FailAt, r.k.FailWith = n, errno
	c, err := r.open(t)
	if err == nil {
		r.c = c
		err = everything(r.c)
		r.k.Set(func() { r.k.FailAt = 0 }) // closing succeeds
		if err := c.Close(); err != nil {
			t.Errorf("command %d fails with %v: then Close fails: %v", n, errno, err)
		}
		if o := c.objects.first; c.ids.count() != 0 || o != nil {
			t.Errorf("command %d fails with %v: %d ids are left, and object %v", n, errno, c.ids.count(), o)
		}
	}
	failed := r.k.Log()[min(n, len(r.k.Log()))-1]
	if left := len(leak.Live()) - tickets; left != 0 {
		t.Errorf("%s fails with %v: %d things are left: %v", failed, errno, left, leak.Live())
	}
	r.k.Close(t)
	if err != nil && !errors.Is(err, errno) {
		t.Errorf("%s fails with %v, and the error is %v", failed, errno, err)
	}
	return err == nil
}

// everything creates an object of every kind. The caller checks that a create call that failed
// leaves nothing.
func everything(c *Context) error {
	pd, err := c.AllocPD()
	if err != nil {
		return err
	}
	if _, err := pd.Alloc(5000, LocalWrite); err != nil {
		return err
	}
	if _, err := pd.RegMR(make([]byte, 100), 0); err != nil {
		return err
	}
	if _, err := pd.AllocMW(MWType2); err != nil {
		return err
	}
	ch, err := c.CreateCompChannel()
	if err != nil {
		return err
	}
	cq, err := c.CreateCQ(CQConfig{Entries: 16})
	if err != nil {
		return err
	}
	if _, err := c.CreateCQ(CQConfig{Entries: 16, Channel: ch}); err != nil {
		return err
	}
	qp, err := pd.CreateQP(QPConfig{Type: RC, SendCQ: cq, MaxSendWR: 4, MaxRecvWR: 4})
	if err != nil {
		return err
	}
	remote, err := qp.Endpoint()
	if err != nil {
		return err
	}
	if err := qp.Connect(remote); err != nil {
		return err
	}
	if err := cq.Resize(32); err != nil {
		return err
	}
	if _, err := qp.Query(MaskState); err != nil {
		return err
	}
	return everythingUD(pd, cq)
}

func everythingUD(pd *PD, cq *CQ) error {
	srq, err := pd.CreateSRQ(SRQConfig{MaxWR: 4})
	if err != nil {
		return err
	}
	qp, err := pd.CreateQP(QPConfig{Type: UD, SendCQ: cq, SRQ: srq, MaxSendWR: 4})
	if err != nil {
		return err
	}
	if err := qp.Ready(); err != nil {
		return err
	}
	if err := qp.AttachMcast(GID{0: 0xff, 15: 1}, 0); err != nil {
		return err
	}
	if _, err := pd.CreateAH(somewhere); err != nil {
		return err
	}
	if err := srq.Modify(SRQAttr{MaxWR: 8}, SRQMaskMaxWR); err != nil {
		return err
	}
	if _, err = srq.Query(); err != nil {
		return err
	}
	return everythingXRC(pd, cq)
}

func everythingXRC(pd *PD, cq *CQ) error {
	x, err := pd.ctx.OpenXRCD(nil, 0)
	if err != nil {
		return err
	}
	if _, err := pd.CreateSRQ(SRQConfig{MaxWR: 4, XRCD: x, CQ: cq}); err != nil {
		return err
	}
	if _, err := pd.CreateQP(QPConfig{Type: XRCSend, SendCQ: cq, MaxSendWR: 4}); err != nil {
		return err
	}
	qp, err := x.CreateQP(QPConfig{})
	if err != nil {
		return err
	}
	_, err = x.OpenQP(qp.QPN())
	return err
}
