package main

import (
	"errors"
	"fmt"

	"github.com/goverbs/goverbs/uverbs"
)

// A target is what decides which parts can run on a device.
type target struct {
	link    string // link layer
	driver  string
	iwarp   bool // rdma_cm alone connects its QPs
	rc      bool // it has RC QPs
	atomics bool
}

// probe returns what a device is, or an error if it cannot be tested.
func probe(device string) (t target, err error) {
	c, err := uverbs.Open(device)
	if err != nil {
		return t, err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	port, err := c.QueryPort(1)
	if err == nil && port.State != uverbs.PortActive {
		err = fmt.Errorf("port 1 of %s is %v: connect it to a switch or to another port, and bring its interface up;"+
			" on InfiniBand a subnet manager must run", device, port.State)
	}
	if err != nil {
		return t, err
	}
	attr, err := c.QueryDevice()
	if err != nil {
		return t, err
	}
	t = target{link: port.LinkLayer.String(), driver: c.Device().Driver(), iwarp: c.Device().NodeType == uverbs.NodeRNIC,
		atomics: attr.AtomicCap != uverbs.AtomicNone}
	switch err := createQP(c, uverbs.QPConfig{Type: uverbs.RC, MaxSendWR: 1}); {
	case err == nil:
		t.rc = true
	case !errors.Is(err, uverbs.ErrNotSupported):
		return t, err
	}
	return t, nil
}

// hasCM reports whether rdma_cm serves the device, which needs a link layer with addresses.
func (t target) hasCM() bool { return t.link == ethernet || t.link == uverbs.LinkInfiniBand.String() }

var ethernet = uverbs.LinkEthernet.String()

// createQP creates a QP and closes it.
func createQP(c *uverbs.Context, cfg uverbs.QPConfig) (err error) {
	pd, err := c.AllocPD()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, pd.Close()) }()
	cq, err := c.CreateCQ(uverbs.CQConfig{Entries: 1})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, cq.Close()) }()
	cfg.SendCQ = cq
	q, err := pd.CreateQP(cfg)
	if err != nil {
		return err
	}
	return q.Close()
}
