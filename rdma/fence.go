package rdma

import "github.com/goverbs/goverbs/uverbs"

// fencesBinds reports whether fenceBind is needed. When rxe retransmits a request, it also executes the binds behind it
// again that it has executed already (req_retry and rxe_requester in rxe_req.c). The second execution fails, and the
// queue is flushed. Shared receives make this frequent: a SEND is retransmitted when there are none.
func (c *Conn) fencesBinds() bool { return c.qp.Context().Device().Driver() == "rxe" }

// fenceBind posts what has to precede a request that binds a window, and returns the flags of that request. A READ of
// no bytes is acknowledged after all requests before it, and a bind with a fence waits for the READ.
// The caller holds c.mu. The READ may use room of the protocol.
func (c *Conn) fenceBind() (uverbs.SendFlags, error) {
	if !c.fences || c.head == c.tail {
		return 0, nil
	}
	seq, _ := c.next(false)
	b := c.qp.StartSend()
	b.Read(seq, 0, 0, 0)
	if err := b.Submit(); err != nil {
		return 0, err
	}
	c.posted(request{}, 0)
	return uverbs.Fence, nil
}
