package main

import (
	"errors"
	"io"
	"os"

	"github.com/goverbs/goverbs/uverbs"
)

// make creates an object and closes it.
func (v *victim) make(kind string) error {
	m := &maker{victim: v}
	how, ok := map[string]func() error{
		"context":   func() error { return m.have(uverbs.Open(v.dev.Name())) },
		"pd":        func() error { return m.have(v.dev.AllocPD()) },
		"mr":        func() error { return m.have(v.pd.Alloc(1<<20, uverbs.LocalWrite)) },
		"cq":        func() error { return m.have(v.dev.CreateCQ(uverbs.CQConfig{Entries: 10})) },
		"srq":       func() error { return m.have(v.pd.CreateSRQ(uverbs.SRQConfig{MaxWR: 10})) },
		"qp":        func() error { return m.have(v.queuePair()) },
		"mw":        func() error { return m.have(v.pd.AllocMW(uverbs.MWType2)) },
		"td":        func() error { return m.have(v.dev.AllocTD()) },
		"raw":       func() error { return m.have(m.raw()) },
		"resized":   m.resized,
		"connected": m.connected,
		"xrc":       m.xrc,
		"flow":      m.flow,
		"rss":       m.rss,
		"many":      m.many,
	}[kind]
	if !ok {
		return errors.New("unknown kind: " + kind)
	}
	err := how()
	for i := len(m.made) - 1; i >= 0; i-- {
		err = errors.Join(err, m.made[i].Close())
	}
	return err
}

// A maker creates objects and keeps them to close them.
type maker struct {
	*victim
	made []io.Closer
}

// have keeps the object that a call has created.
func (m *maker) have(c io.Closer, err error) error {
	if err == nil {
		m.made = append(m.made, c)
	}
	return err
}

// kept is like have and returns the object.
func kept[T io.Closer](m *maker, c T, err error) (T, error) { return c, m.have(c, err) }

func (m *maker) resized() error {
	cq, err := m.dev.CreateCQ(uverbs.CQConfig{Entries: 10})
	if _, err = kept(m, cq, err); err != nil {
		return err
	}
	return cq.Resize(100)
}

// connected creates a QP and moves it to RTS.
func (m *maker) connected() error {
	qp, err := m.queuePair()
	if _, err = kept(m, qp, err); err != nil {
		return err
	}
	self, err := qp.Endpoint()
	if err != nil {
		return err
	}
	return qp.Connect(self)
}

// many creates more QPs than there are exclusive registers, on a separate context.
func (m *maker) many() error {
	dev, err := uverbs.Open(m.dev.Name())
	if _, err = kept(m, dev, err); err != nil {
		return err
	}
	pd, err := dev.AllocPD()
	if _, err = kept(m, pd, err); err != nil {
		return err
	}
	cq, err := dev.CreateCQ(uverbs.CQConfig{Entries: 10})
	if _, err = kept(m, cq, err); err != nil {
		return err
	}
	for range 8 {
		if err := m.have(pd.CreateQP(uverbs.QPConfig{Type: uverbs.RC, SendCQ: cq, MaxSendWR: 4, MaxRecvWR: 4})); err != nil {
			return err
		}
	}
	return nil
}

// xrc creates an XRC domain, an SRQ in it, and both types of XRC QPs.
func (m *maker) xrc() error {
	x, err := m.dev.OpenXRCD(nil, os.O_CREATE)
	if _, err = kept(m, x, err); err != nil {
		return err
	}
	if err := m.have(m.pd.CreateSRQ(uverbs.SRQConfig{XRCD: x, CQ: m.cq, MaxWR: 10})); err != nil {
		return err
	}
	if err := m.have(m.pd.CreateQP(uverbs.QPConfig{Type: uverbs.XRCSend, SendCQ: m.cq, MaxSendWR: 10})); err != nil {
		return err
	}
	return m.have(x.CreateQP(uverbs.QPConfig{Type: uverbs.XRCRecv}))
}

func (m *maker) raw() (*uverbs.QP, error) {
	return m.pd.CreateQP(uverbs.QPConfig{Type: uverbs.RawPacket, SendCQ: m.cq, MaxSendWR: 10, MaxRecvWR: 10})
}

// flow creates a raw packet QP and a flow that steers frames to it.
func (m *maker) flow() error {
	qp, err := m.raw()
	if _, err = kept(m, qp, err); err != nil {
		return err
	}
	if err := qp.Ready(); err != nil {
		return err
	}
	mac := uverbs.EthFilter{DstMAC: [6]byte{2, 3, 4, 5, 6, 7}}
	all := uverbs.EthFilter{DstMAC: [6]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}}
	return m.have(qp.CreateFlow(uverbs.FlowAttr{Specs: []uverbs.FlowSpec{uverbs.FlowEth{Val: mac, Mask: all}}}))
}

// rss creates WQs, an indirection table of them, and a QP that distributes frames to
// them.
func (m *maker) rss() error {
	var wqs []*uverbs.WQ
	for range 2 {
		wq, err := m.pd.CreateWQ(uverbs.WQConfig{CQ: m.cq, MaxWR: 10, MaxSGE: 1})
		if _, err = kept(m, wq, err); err != nil {
			return err
		}
		if err := wq.Ready(); err != nil {
			return err
		}
		wqs = append(wqs, wq)
	}
	table, err := m.dev.CreateRWQIndTable(wqs...)
	if _, err = kept(m, table, err); err != nil {
		return err
	}
	return m.have(m.pd.CreateQP(uverbs.QPConfig{Type: uverbs.RawPacket,
		RSS: &uverbs.RSSConfig{Table: table, Function: uverbs.RSSToeplitz,
			Key: make([]byte, 40), Fields: uverbs.RSSSrcIPv4 | uverbs.RSSDstIPv4}}))
}
