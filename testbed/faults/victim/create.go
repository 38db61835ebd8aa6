package main

import (
	"errors"
	"io"

	"github.com/goverbs/goverbs/uverbs"
	"github.com/goverbs/goverbs/uverbs/ether"
)

// create creates an object and closes it.
func (v *victim) create(kind string) error {
	m := &creator{victim: v}
	how, ok := map[string]func() error{
		"context":   func() error { return m.add(uverbs.Open(v.dev.Name())) },
		"pd":        func() error { return m.add(v.dev.AllocPD()) },
		"mr":        func() error { return m.add(v.pd.Alloc(1<<20, uverbs.LocalWrite)) },
		"cq":        func() error { return m.add(v.dev.CreateCQ(uverbs.CQConfig{Entries: 10})) },
		"srq":       func() error { return m.add(v.pd.CreateSRQ(uverbs.SRQConfig{MaxWR: 10})) },
		"qp":        func() error { return m.add(v.queuePair()) },
		"mw":        func() error { return m.add(v.pd.AllocMW(uverbs.MWType2)) },
		"td":        func() error { return m.add(v.dev.AllocTD()) },
		"raw":       func() error { return m.add(m.raw()) },
		"resized":   m.resized,
		"connected": m.connected,
		"xrc":       m.xrc,
		"flow":      m.flow,
		"rss":       m.rss,
		"many":      m.many,
		"dci":       m.dci,
		"dct":       m.dct,
		"dm":        func() error { return m.add(v.dev.AllocDM(uverbs.DMConfig{Size: dmSize})) },
		"regdm":     m.regDM,
	}[kind]
	if !ok {
		return errors.New("unknown kind: " + kind)
	}
	err := how()
	for i := len(m.created) - 1; i >= 0; i-- {
		err = errors.Join(err, m.created[i].Close())
	}
	return err
}

// A creator creates objects and keeps them to close them.
type creator struct {
	*victim
	created []io.Closer
}

// add keeps the object that a call has created.
func (m *creator) add(c io.Closer, err error) error {
	if err == nil {
		m.created = append(m.created, c)
	}
	return err
}

// addObject is like add and returns the object.
func addObject[T io.Closer](m *creator, c T, err error) (T, error) { return c, m.add(c, err) }

func (m *creator) resized() error {
	cq, err := m.dev.CreateCQ(uverbs.CQConfig{Entries: 10})
	if _, err = addObject(m, cq, err); err != nil {
		return err
	}
	return cq.Resize(100)
}

// connected creates a QP and moves it to RTS.
func (m *creator) connected() error {
	qp, err := m.queuePair()
	if _, err = addObject(m, qp, err); err != nil {
		return err
	}
	self, err := qp.Endpoint()
	if err != nil {
		return err
	}
	return qp.Connect(self)
}

// many creates more QPs than there are exclusive registers, on a separate context.
func (m *creator) many() error {
	dev, err := uverbs.Open(m.dev.Name())
	if _, err = addObject(m, dev, err); err != nil {
		return err
	}
	pd, err := dev.AllocPD()
	if _, err = addObject(m, pd, err); err != nil {
		return err
	}
	cq, err := dev.CreateCQ(uverbs.CQConfig{Entries: 10})
	if _, err = addObject(m, cq, err); err != nil {
		return err
	}
	for range 8 {
		if err := m.add(pd.CreateQP(uverbs.QPConfig{Type: uverbs.RC, SendCQ: cq, MaxSendWR: 4, MaxRecvWR: 4})); err != nil {
			return err
		}
	}
	return nil
}

// xrc creates an XRC domain, an SRQ in it, and both types of XRC QPs.
func (m *creator) xrc() error {
	x, err := m.dev.OpenXRCD(nil, uverbs.XRCDCreate)
	if _, err = addObject(m, x, err); err != nil {
		return err
	}
	if err := m.add(m.pd.CreateSRQ(uverbs.SRQConfig{XRCD: x, CQ: m.cq, MaxWR: 10})); err != nil {
		return err
	}
	if err := m.add(m.pd.CreateQP(uverbs.QPConfig{Type: uverbs.XRCSend, SendCQ: m.cq, MaxSendWR: 10})); err != nil {
		return err
	}
	return m.add(x.CreateQP(uverbs.QPConfig{Type: uverbs.XRCRecv}))
}

// dci creates a DCI and moves it to RTS.
func (m *creator) dci() error {
	qp, err := m.pd.CreateQP(uverbs.QPConfig{Type: uverbs.DCI, SendCQ: m.cq, MaxSendWR: 10})
	if _, err = addObject(m, qp, err); err != nil {
		return err
	}
	return qp.Ready()
}

// dct creates a DCT of a star and moves it to RTR.
func (m *creator) dct() error {
	qp, err := m.createDCT()
	if _, err = addObject(m, qp, err); err != nil {
		return err
	}
	return qp.Ready()
}

// regDM allocates device memory and registers it.
func (m *creator) regDM() error {
	dm, err := m.dev.AllocDM(uverbs.DMConfig{Size: dmSize})
	if _, err = addObject(m, dm, err); err != nil {
		return err
	}
	return m.add(m.pd.RegDM(dm, 0, dmSize, uverbs.LocalWrite))
}

func (m *creator) raw() (*uverbs.QP, error) {
	return m.pd.CreateQP(uverbs.QPConfig{Type: uverbs.RawPacket, SendCQ: m.cq, MaxSendWR: 10, MaxRecvWR: 10})
}

// flow creates a raw packet QP and a flow that steers frames to it.
func (m *creator) flow() error {
	qp, err := m.raw()
	if _, err = addObject(m, qp, err); err != nil {
		return err
	}
	if err := qp.Ready(); err != nil {
		return err
	}
	mac := ether.EthFilter{DstMAC: [6]byte{2, 3, 4, 5, 6, 7}}
	all := ether.EthFilter{DstMAC: [6]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}}
	return m.add(ether.CreateFlow(qp, ether.FlowAttr{Specs: []ether.FlowSpec{ether.FlowEth{Val: mac, Mask: all}}}))
}

// rss creates WQs, an indirection table of them, and a QP that distributes frames to
// them.
func (m *creator) rss() error {
	var wqs []*ether.WQ
	for range 2 {
		wq, err := ether.CreateWQ(m.pd, ether.WQConfig{CQ: m.cq, MaxWR: 10, MaxSGE: 1})
		if _, err = addObject(m, wq, err); err != nil {
			return err
		}
		if err := wq.Ready(); err != nil {
			return err
		}
		wqs = append(wqs, wq)
	}
	table, err := ether.CreateRWQIndTable(m.dev, wqs...)
	if _, err = addObject(m, table, err); err != nil {
		return err
	}
	return m.add(ether.CreateRSSQP(m.pd, ether.RSSConfig{Table: table, Function: ether.RSSToeplitz,
		Key: make([]byte, 40), Fields: ether.RSSSrcIPv4 | ether.RSSDstIPv4}))
}
