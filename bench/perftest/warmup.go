package perftest

import (
	"context"

	"github.com/goverbs/goverbs/uverbs"
)

// warmUp fills each send queue once before the measurement.
func (e *endpoint) warmUp(ctx context.Context) error {
	if !e.o.sends() {
		return nil
	}
	return withPatience(ctx, func(ctx context.Context) error {
		for _, q := range e.qps {
			q.wrs[len(q.wrs)-1].Flags |= uverbs.Signaled
			lists := e.o.TxDepth / e.o.PostList
			for range lists {
				if _, err := q.qp.PostSend(q.wrs...); err != nil {
					return err
				}
			}
			for range lists * e.o.PostList / min(e.o.CQMod, e.o.PostList) {
				wc, err := e.next(ctx, e.scq)
				if err == nil {
					err = e.check(wc, false)
				}
				if err != nil {
					return err
				}
			}
		}
		e.prepare(e.size)
		return nil
	})
}
