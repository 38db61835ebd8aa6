package devicetest

import (
	"bytes"
	"errors"
	"testing"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/internal/sim/features"
	"github.com/goverbs/goverbs/provider/mlx5"
	"github.com/goverbs/goverbs/uverbs"
)

// TestDeviceMLX5RDMACM has the tests of rdma-core's tests/test_mlx5_rdmacm.py.
func TestDeviceMLX5RDMACM(t *testing.T) {
	begin(t)
	t.Run("test_rdmacm_async_traffic_dc_external_qp", func(t *testing.T) {
		hasReservedQPNs(t)
		hasAddress(t)
		playBoth(t, playDC)
	})
	t.Run("test_reservered_qpn", func(t *testing.T) {
		hasReservedQPNs(t)
		reserveQPNs(t)
	})
}

// hasReservedQPNs skips the test if the device has no reserved QP numbers.
func hasReservedQPNs(t *testing.T) {
	t.Helper()
	c := must(uverbs.Open(rdmaDevice()))(t)
	defer func() { check(t, c.Close()) }()
	_, err := mlx5.AllocReservedQPN(c)
	if errors.Is(err, uverbs.ErrNotSupported) {
		features.Missing(t, features.ReservedQPN, err)
	}
	check(t, err)
}

// reserveQPNs allocates more numbers than the device reserves at once, and closes them.
func reserveQPNs(t *testing.T) {
	c := must(uverbs.Open(rdmaDevice()))(t)
	defer func() { check(t, c.Close()) }()
	seen := make(map[uint32]*mlx5.ReservedQPN)
	for range 1000 {
		n := must(mlx5.AllocReservedQPN(c))(t)
		if seen[n.QPN()] != nil {
			t.Fatalf("%#x twice", n.QPN())
		}
		seen[n.QPN()] = n
	}
	for _, n := range seen {
		check(t, errors.Join(n.Close(), n.Close()))
	}
	if n := must(mlx5.AllocReservedQPN(c))(t); n.QPN() == 0 {
		t.Error("the number is 0")
	}
}

// dcKey is the key of the DCT, and dcConns the number of connections.
const (
	dcKey   = 0xffeeddcc
	dcConns = 2
)

// A dcPlayer is a side of two connections, with a DCI for each on the active side, and one DCT on the passive side.
type dcPlayer struct {
	*player
	conns []*cm.ID
	cq    *uverbs.CQ
	srq   *uverbs.SRQ
	qps   []*uverbs.QP
	to    uverbs.AHAttr
}

// playDC connects twice by external QPs, which are of DC, and sends on both connections.
func playDC(p *player) {
	d := &dcPlayer{player: p}
	d.create()
	ai := d.addrInfo()
	if d.passive {
		check(d, d.id.Bind(ai.Src))
		check(d, d.id.Listen(0))
	}
	for i := range dcConns {
		if d.passive {
			d.acceptDC(i)
		} else {
			d.requestDC(i, ai)
		}
	}
	d.dcTraffic()
	for range dcConns {
		if !d.passive {
			d.event(cm.EventDisconnected)
		}
	}
	for _, c := range d.conns {
		check(d, c.Disconnect())
	}
}

// acceptDC accepts the request of a connection. The first has the number of the DCT, the others have reserved ones,
// because rdma_cm accepts a number once.
func (d *dcPlayer) acceptDC(i int) {
	d.wait()
	d.event(cm.EventConnectRequest)
	d.conns = append(d.conns, d.conn)
	var qpn uint32
	if i == 0 {
		d.createCQ()
		d.srq = must(d.conn.PD().CreateSRQ(uverbs.SRQConfig{MaxWR: parityMessages}))(d)
		closing(d, d.srq)
		dct := must(d.conn.PD().CreateQP(uverbs.QPConfig{Type: uverbs.DCT, RecvCQ: d.cq, SRQ: d.srq, DCKey: dcKey}))(d)
		closing(d, dct)
		d.qps = append(d.qps, dct)
		d.modify(dct, uverbs.StateInit, uverbs.MaskPKeyIndex|uverbs.MaskPort|uverbs.MaskAccess)
		d.modify(dct, uverbs.StateRTR, uverbs.MaskPathMTU|uverbs.MaskMinRNRTimer|uverbs.MaskAV)
		qpn = dct.QPN()
	} else {
		n := must(mlx5.AllocReservedQPN(d.conn.Verbs()))(d)
		closing(d, n)
		qpn = n.QPN()
	}
	check(d, d.conn.Accept(&cm.ConnParam{QPN: qpn, RetryCount: 5, RNRRetryCount: 5}))
	d.event(cm.EventEstablished)
}

// requestDC requests a connection, and moves its DCI to RTS.
func (d *dcPlayer) requestDC(i int, ai *cm.AddrInfo) {
	d.conn = d.id
	if i > 0 {
		d.conn = must(d.ch.CreateID(d.ps))(d)
		closing(d, d.conn)
	}
	d.conns = append(d.conns, d.conn)
	check(d, d.conn.ResolveAddr(ai.Src, ai.Dst, parityTimeout))
	d.event(cm.EventAddrResolved)
	d.wait()
	check(d, d.conn.ResolveRoute(parityTimeout))
	d.event(cm.EventRouteResolved)
	if i == 0 {
		d.createCQ()
	}
	dci := must(d.conn.PD().CreateQP(uverbs.QPConfig{Type: uverbs.DCI, SendCQ: d.cq, MaxSendWR: parityMessages,
		SignalAll: true}))(d)
	closing(d, dci)
	d.qps = append(d.qps, dci)
	check(d, d.conn.Connect(&cm.ConnParam{QPN: dci.QPN(), RetryCount: 5, RNRRetryCount: 5}))
	d.event(cm.EventConnectResponse)
	d.modify(dci, uverbs.StateInit, uverbs.MaskPKeyIndex|uverbs.MaskPort)
	d.to = d.modify(dci, uverbs.StateRTR, uverbs.MaskPathMTU).AV
	d.modify(dci, uverbs.StateRTS, uverbs.MaskSQPSN|uverbs.MaskTimeout|uverbs.MaskRetryCount|uverbs.MaskRNRRetryCount|
		uverbs.MaskMaxRdAtomic)
	check(d, d.conn.Establish())
}

func (d *dcPlayer) createCQ() {
	d.cq = must(d.conn.Verbs().CreateCQ(uverbs.CQConfig{Entries: parityMessages}))(d)
	closing(d, d.cq)
}

// modify moves a QP to a state with those attributes of the connection that QPs of DC have.
func (d *dcPlayer) modify(q *uverbs.QP, s uverbs.QPState, of uverbs.QPMask) uverbs.QPAttr {
	d.Helper()
	attr, mask, err := d.conn.InitQPAttr(s)
	check(d, err)
	check(d, q.Modify(attr, mask&(of|uverbs.MaskState)))
	return attr
}

// dcTraffic sends messages to the DCT, from each DCI in turn.
func (d *dcPlayer) dcTraffic() {
	mr := must(d.conns[0].PD().Alloc(parityMessages*paritySize, uverbs.LocalWrite))(d)
	closing(d, mr)
	message := func(i int) []byte { return bytes.Repeat([]byte{byte(i + 1)}, paritySize) }
	sge := func(i int) []uverbs.SGE { return []uverbs.SGE{mr.SGE(i*paritySize, paritySize)} }
	if d.passive {
		d.notes <- note{key: d.qps[0].QPN()}
		for i := range parityMessages {
			must(d.srq.PostRecv(uverbs.RecvWR{WRID: uint64(i), SGL: sge(i)}))(d)
		}
		d.wait()
		for i := range parityMessages {
			d.completion(i)
			if got := mr.Bytes()[i*paritySize:][:paritySize]; !bytes.Equal(got, message(i)) {
				d.Fatal("message", i, "is", got)
			}
		}
		return
	}
	remote := d.note().key
	ah := must(d.conns[0].PD().CreateAH(d.to))(d)
	closing(d, ah)
	d.wait()
	for i := range parityMessages {
		copy(mr.Bytes()[i*paritySize:], message(i))
		must(d.qps[i%dcConns].PostSend(uverbs.SendWR{WRID: uint64(i), Opcode: uverbs.OpSend, SGL: sge(i), AH: ah,
			QPN: remote, DCKey: dcKey}))(d)
		d.completion(i)
	}
}

// completion waits for a completion with this WRID.
func (d *dcPlayer) completion(i int) {
	d.Helper()
	var wcs [1]uverbs.WC
	must(d.cq.PollWait(d.ctx, wcs[:]))(d)
	check(d, wcs[0].Err())
	if wcs[0].WRID != uint64(i) {
		d.Fatal("completion of", wcs[0].WRID, "; want", i)
	}
}
