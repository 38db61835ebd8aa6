package perftest

import (
	"math/rand/v2"

	"github.com/goverbs/goverbs/uverbs"
)

// dcKey is the access key of perftest's DCTs.
const dcKey = 0xffeeddcc

// dcInline is the inline size of latency tests over DC.
const dcInline = 150

// dc reports whether the QPs are dynamically connected (-c DC): requests are sent by DCIs to
// the peer's DCTs.
func (o *Options) dc() bool { return o.Type == uverbs.DCI }

// dcBoth reports whether each end has DCIs and DCTs. Otherwise the active end has the DCIs,
// and the other the DCTs.
func (o *Options) dcBoth() bool { return o.dc() && (!o.Bandwidth || o.Bidirectional) }

// dct reports whether this end has DCTs.
func (o *Options) dct() bool { return o.dc() && (o.dcBoth() || !o.active()) }

// reliable reports whether the transport repeats lost packets.
func (o *Options) reliable() bool { return o.Type == uverbs.RC || o.dc() }

// qpCount returns the number of QPs as perftest prints it.
func (o *Options) qpCount() int {
	return choose(o.dcBoth(), 2, 1) * o.QPs
}

// typeName returns the connection type as perftest names it.
func (o *Options) typeName() string { return choose(o.dc(), "DC", o.Type.String()) }

// createDC creates the QPs of this end, in state INIT. If it has both, own and peer of a
// queue are the keys of the DCTs.
func (e *endpoint) createDC() error {
	for range e.o.QPs {
		var q *queue
		for _, t := range []uverbs.QPType{uverbs.DCT, uverbs.DCI} {
			if t == uverbs.DCT && !e.o.dct() || t == uverbs.DCI && !e.o.sends() {
				continue
			}
			qp, err := e.pd.CreateQP(e.dcConfig(t))
			if err != nil {
				return e.explainQP(err)
			}
			if err := e.init(qp, t); err != nil {
				return err
			}
			if q != nil {
				q.dct, q.qp = q.qp, qp
				q.dci.own = q.own
				q.dci.own.qpn, q.dci.own.psn = qp.QPN(), rand.Uint32()&0xffffff
				continue
			}
			e.add(qp)
			q = e.qps[len(e.qps)-1]
			if t == uverbs.DCT {
				q.dct = qp
			}
		}
	}
	return nil
}

func (e *endpoint) dcConfig(t uverbs.QPType) uverbs.QPConfig {
	if t == uverbs.DCT {
		return uverbs.QPConfig{Type: t, RecvCQ: e.rcq, SRQ: e.srq, DCKey: dcKey, Options: e.o.qpOptions()}
	}
	return uverbs.QPConfig{Type: t, SendCQ: e.scq, MaxSendWR: e.o.TxDepth, MaxInline: e.o.Inline,
		SingleGoroutine: e.o.NoLock, Options: e.o.qpOptions()}
}

// connectDC moves a DCT to RTR, where it has its number, and a DCI to RTS.
func (e *endpoint) connectDC(q *queue) error {
	path := e.path(q)
	if q.dct != nil {
		if err := q.dct.Modify(uverbs.QPAttr{State: uverbs.StateRTR, PathMTU: e.o.mtu, MinRNRTimer: minRNRTimer, AV: path},
			uverbs.MaskState|uverbs.MaskPathMTU|uverbs.MaskMinRNRTimer|uverbs.MaskAV); err != nil {
			return err
		}
	}
	if !e.o.sends() {
		return nil
	}
	if err := q.qp.Modify(uverbs.QPAttr{State: uverbs.StateRTR, PathMTU: e.o.mtu},
		uverbs.MaskState|uverbs.MaskPathMTU); err != nil {
		return err
	}
	if err := e.toRTS(q); err != nil {
		return err
	}
	var err error
	q.ah, err = e.pd.CreateAH(path)
	return err
}

// A swapped names keys that are exchanged.
type swapped struct{ own, peer *keys }

// swaps returns the keys of all QPs in the order of their exchange: with DCIs and DCTs at each
// end first those of the DCIs.
func (e *endpoint) swaps() (all []swapped) {
	if e.o.dcBoth() {
		for _, q := range e.qps {
			all = append(all, swapped{&q.dci.own, &q.dci.peer})
		}
	}
	for _, q := range e.qps {
		all = append(all, swapped{&q.own, &q.peer})
	}
	return all
}

// first returns the keys of this end in syncs: those of its first QP.
func (e *endpoint) first() keys { return *e.swaps()[0].own }
