package main

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/goverbs/goverbs/testbed/faults"
	"github.com/goverbs/goverbs/uverbs"
)

// TestDrain checks that drain waits for the requests that are left in the queues of a broken session, and
// counts those that never complete.
func TestDrain(t *testing.T) {
	for name, keeps := range map[string]struct{ sends, receives int }{
		"all is flushed": {}, "a send is kept": {1, 0}, "receives are kept": {0, 2}, "everything is kept": {3, receives},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := &peer{account: &faults.Account{Posted: 3, Statuses: map[string]int{}}}
				q := &flushing{}
				s := &session{peer: p, out: 3, posted: receives, err: errGone, poll: q.poll}
				s.fail = func() error {
					q.flush(sendAt, 3-keeps.sends)
					q.flush(recvAt, receives-keeps.receives)
					return nil
				}
				if err := s.drain(errGone); err != nil {
					t.Fatal(err)
				}
				if p.account.Unreported != keeps.sends || p.account.Unflushed != keeps.receives {
					t.Errorf("%d sends and %d receives are missing, the account says %d and %d", keeps.sends, keeps.receives,
						p.account.Unreported, p.account.Unflushed)
				}
				if bad := keeps.sends+keeps.receives > 0; (p.account.Check() != nil) != bad {
					t.Errorf("%+v: %v", p.account, p.account.Check())
				}
			})
		})
	}
}

// flushing are the completions of a QP in ERR.
type flushing struct{ wcs []uverbs.WC }

func (q *flushing) flush(part, n int) {
	for i := range n {
		q.wcs = append(q.wcs, uverbs.WC{WRID: id(part, i), Status: uverbs.WCWRFlushErr})
	}
}

func (q *flushing) poll(ctx context.Context, wcs []uverbs.WC) (int, error) {
	if len(q.wcs) == 0 {
		<-ctx.Done()
		return 0, ctx.Err()
	}
	n := copy(wcs, q.wcs)
	q.wcs = q.wcs[n:]
	return n, nil
}
