package verbstest_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/uverbs"
	"github.com/goverbs/goverbs/verbstest"
)

// TestManyEvents checks that any number of completion events can wait to be read.
func TestManyEvents(t *testing.T) {
	const n = 1000 // more than a socket holds
	m := verbstest.New(t)
	c := must(uverbs.Open(m.Device()))(t)
	defer c.Close()
	pd := must(c.AllocPD())(t)
	mr := must(pd.Alloc(messageSize, uverbs.LocalWrite|uverbs.RemoteWrite))(t)
	ch := must(c.CreateCompChannel())(t)
	var cqs []*uverbs.CQ
	for range n {
		cq := must(c.CreateCQ(uverbs.CQConfig{Entries: 1, Channel: ch}))(t)
		q := must(pd.CreateQP(uverbs.QPConfig{Type: uverbs.RC, SendCQ: cq, RecvCQ: cq, MaxSendWR: 1,
			Access: uverbs.RemoteWrite}))(t)
		check(t, q.Connect(must(q.Endpoint())(t)))
		check(t, cq.Arm(false))
		must(q.PostSend(uverbs.SendWR{Opcode: uverbs.OpWrite, Flags: uverbs.Signaled, SGL: []uverbs.SGE{mr.SGE(0, 8)},
			RemoteAddr: mr.Addr() + 8, RKey: mr.RKey()}))(t)
		cqs = append(cqs, cq)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for _, cq := range cqs {
		check(t, cq.Wait(ctx))
	}
}

// TestFailedResize checks that the device does not use the memory of a CQ that could not be
// resized.
func TestFailedResize(t *testing.T) {
	m := verbstest.New(t)
	c := must(uverbs.Open(m.Device()))(t)
	defer c.Close()
	q, mr := loopback(t, c)
	m.Refuse("RESIZE_CQ", unix.ENOMEM)
	if err := q.SendCQ().Resize(1000); !errors.Is(err, unix.ENOMEM) {
		t.Errorf("Resize: %v", err)
	}
	must(q.PostSend(uverbs.SendWR{WRID: 7, Opcode: uverbs.OpWrite, Flags: uverbs.Signaled, SGL: []uverbs.SGE{mr.SGE(0, 8)},
		RemoteAddr: mr.Addr() + 8, RKey: mr.RKey()}))(t)
	var wcs [1]uverbs.WC
	if n := must(q.SendCQ().Poll(wcs[:]))(t); n != 1 || wcs[0].WRID != 7 || wcs[0].Err() != nil {
		t.Errorf("%d completions, %+v", n, wcs[0])
	}
}

// TestRaceWithCommands changes a machine while a program issues commands.
func TestRaceWithCommands(t *testing.T) {
	m := verbstest.New(t)
	c := must(uverbs.Open(m.Device()))(t)
	defer c.Close()
	var commands sync.WaitGroup
	for range 2 {
		commands.Go(func() {
			for range 100 {
				pd, err := c.AllocPD()
				if err != nil || pd.Close() != nil {
					t.Errorf("a PD: %v", err)
				}
				if other, err := uverbs.Open(m.Device()); err != nil || other.Close() != nil {
					t.Errorf("another Context: %v", err)
				}
			}
		})
	}
	for i := range 100 {
		m.SetPort(i%2 == 1)
		m.SetCommandTime(time.Duration(i % 2))
		m.Commands()
	}
	commands.Wait()
}

// TestRaceWithMachines adds machines to a network while a program on another one creates address
// handles, for which the adapter looks for the machines.
func TestRaceWithMachines(t *testing.T) {
	n := verbstest.NewNetwork(t)
	first := n.Machine()
	first.Run(func() {
		c := must(uverbs.Open(""))(t)
		defer c.Close()
		pd := must(c.AllocPD())(t)
		q := must(pd.CreateQP(uverbs.QPConfig{Type: uverbs.UD, MaxSendWR: 1, QKey: 1,
			SendCQ: must(c.CreateCQ(uverbs.CQConfig{Entries: 1}))(t)}))(t)
		attr := must(q.AHAttr(must(q.Endpoint())(t)))(t)
		added := make(chan struct{})
		go func() {
			defer close(added)
			for range 100 {
				n.Machine()
			}
		}()
		for more := true; more; {
			check(t, must(pd.CreateAH(attr))(t).Close())
			select {
			case <-added:
				more = false
			default:
			}
		}
	})
}

// TestRemovedDevice checks that a device that has been removed cannot be opened.
func TestRemovedDevice(t *testing.T) {
	m := verbstest.New(t)
	d := must(uverbs.Devices())(t)[0]
	m.RemoveDevice()
	if c, err := d.Open(); !errors.Is(err, uverbs.ErrDeviceGone) {
		t.Errorf("Open: %v, %v", c, err)
	}
}

// TestNowhere checks that a goroutine without a machine does not reach the real one.
func TestNowhere(t *testing.T) {
	start := make(chan struct{})
	result := make(chan error, 1)
	go func() { // before there is a machine
		<-start
		_, err := uverbs.Devices()
		result <- err
	}()
	n := verbstest.NewNetwork(t)
	n.Machine()
	n.Machine()
	close(start)
	if err := <-result; err == nil {
		t.Error("a goroutine that is on no machine has devices")
	} else {
		t.Log(err)
	}
}
