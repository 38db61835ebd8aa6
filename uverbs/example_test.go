package uverbs_test

import (
	"net/netip"

	"github.com/goverbs/goverbs/uverbs"
)

// A server replies to the sender of each datagram. Its receive buffers are consecutive in
// memory, and wr_id is the index of the buffer.
func ExamplePD_CreateAHFromWC() {
	var (
		qp *uverbs.QP // UD
		mr *uverbs.MR // of the receive buffers
	)
	const slot, qkey = uverbs.GRHLen + 4096, 0x11111111
	answer := func(wc *uverbs.WC) error {
		grh := mr.Bytes()[wc.WRID*slot:][:uverbs.GRHLen]
		ah, err := qp.PD().CreateAHFromWC(1, wc, grh)
		if err != nil {
			return err
		}
		// Keep ah for the next datagram from the same sender. Close it when the requests that
		// use it have completed.
		_, err = qp.PostSend(uverbs.SendWR{Opcode: uverbs.OpSend, AH: ah, QPN: wc.SrcQP, QKey: qkey,
			Inline: []byte("thanks")})
		return err
	}
	_ = answer
}

// This sends the same datagram to many peers with one doorbell.
func ExampleSendBatch_UDAddr() {
	type peer struct {
		ah        *uverbs.AH
		qpn, qkey uint32
	}
	tell := func(qp *uverbs.QP, data uverbs.SGE, peers []peer) error {
		b := qp.StartSend()
		for i, p := range peers {
			b.Send(uint64(i), uverbs.Signaled)
			b.UDAddr(p.ah, p.qpn, p.qkey)
			b.SGE(data)
		}
		return b.Submit()
	}
	_ = tell
}

// This creates an address handle from a peer's Endpoint, which was received over TCP for
// instance.
func ExampleQP_AHAttr() {
	reach := func(qp *uverbs.QP, peer uverbs.Endpoint) (*uverbs.AH, error) {
		attr, err := qp.AHAttr(peer)
		if err != nil {
			return nil, err
		}
		return qp.PD().CreateAH(attr)
	}
	_ = reach
}

// On RoCE, a multicast group is identified by its IP address.
func ExampleQP_AttachMcast() {
	var qp *uverbs.QP // UD
	group := uverbs.GIDFromAddr(netip.MustParseAddr("239.7.7.7"))
	attach := func() error { return qp.AttachMcast(group, 0) }
	_ = attach
}

// Many connections share 1000 receives. The program posts more of them when an event reports
// that fewer than 100 are left.
func ExamplePD_CreateSRQ() {
	shared := func(pd *uverbs.PD, cq *uverbs.CQ) (*uverbs.SRQ, []*uverbs.QP, error) {
		srq, err := pd.CreateSRQ(uverbs.SRQConfig{MaxWR: 1000, Limit: 100})
		if err != nil {
			return nil, nil, err
		}
		var qps []*uverbs.QP
		for range 64 {
			qp, err := pd.CreateQP(uverbs.QPConfig{Type: uverbs.RC, SendCQ: cq, SRQ: srq, MaxSendWR: 16})
			if err != nil {
				return nil, nil, err
			}
			qps = append(qps, qp)
		}
		return srq, qps, nil
	}
	_ = shared
}
