package peer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/goverbs/goverbs/uverbs"
)

const (
	qkey          = 0x00d0c7
	datagramBytes = 200 // fits the smallest MTU
	networkHeader = 40  // of a received datagram
)

// datagrams is a UD QP that sends or receives one datagram at a time.
type datagrams struct {
	qp       *uverbs.QP
	mr       *uverbs.MR // a datagram to send, then one received with its network header
	endpoint uverbs.Endpoint
}

// newDatagrams creates the QP and posts its receive.
func newDatagrams(e *end) (_ *datagrams, err error) {
	d := &datagrams{}
	defer func() {
		if err != nil {
			err = errors.Join(err, d.Close())
		}
	}()
	pd, err := e.AllocPD()
	if err != nil {
		return nil, err
	}
	if d.mr, err = pd.Alloc(2*datagramBytes+networkHeader, uverbs.LocalWrite); err != nil {
		return nil, err
	}
	var cqs [2]*uverbs.CQ
	for i := range cqs {
		if cqs[i], err = e.CreateCQ(uverbs.CQConfig{Entries: 4}); err != nil {
			return nil, err
		}
	}
	d.qp, err = pd.CreateQP(uverbs.QPConfig{Type: uverbs.UD, SendCQ: cqs[0], RecvCQ: cqs[1], MaxSendWR: 2, MaxRecvWR: 2,
		GID: e.gid, QKey: qkey})
	if err != nil {
		return nil, err
	}
	if d.endpoint, err = d.qp.Endpoint(); err != nil {
		return nil, err
	}
	if err := d.qp.Ready(); err != nil {
		return nil, err
	}
	return d, d.postRecv()
}

// Close closes the QP and deregisters its memory. Closing the end closes the other objects.
func (d *datagrams) Close() error {
	var errs []error
	if d.qp != nil {
		errs = append(errs, d.qp.Close())
	}
	if d.mr != nil {
		errs = append(errs, d.mr.Close())
	}
	return errors.Join(errs...)
}

func (d *datagrams) postRecv() error {
	sge := d.mr.SGE(datagramBytes, networkHeader+datagramBytes)
	_, err := d.qp.PostRecv(uverbs.RecvWR{SGL: []uverbs.SGE{sge}})
	return err
}

// recv waits for a datagram. It is valid until the next call.
func (d *datagrams) recv(ctx context.Context) ([]byte, error) {
	wc, err := wait(ctx, d.qp.RecvCQ())
	if err != nil {
		return nil, err
	}
	if wc.ByteLen < networkHeader {
		return nil, fmt.Errorf("a datagram of %d bytes, less than its network header", wc.ByteLen)
	}
	data := bytes.Clone(d.mr.Bytes()[datagramBytes+networkHeader:][:wc.ByteLen-networkHeader])
	return data, d.postRecv()
}

// send sends a datagram.
func (d *datagrams) send(ctx context.Context, ah *uverbs.AH, qpn uint32, data []byte) error {
	n := copy(d.mr.Bytes()[:datagramBytes], data)
	_, err := d.qp.PostSend(uverbs.SendWR{Opcode: uverbs.OpSend, Flags: uverbs.Signaled, AH: ah, QPN: qpn, QKey: qkey,
		SGL: []uverbs.SGE{d.mr.SGE(0, n)}})
	if err != nil {
		return err
	}
	_, err = wait(ctx, d.qp.SendCQ())
	return err
}

// wait waits for a completion.
func wait(ctx context.Context, cq *uverbs.CQ) (uverbs.WC, error) {
	var wcs [1]uverbs.WC
	if _, err := cq.PollWait(ctx, wcs[:]); err != nil {
		return wcs[0], err
	}
	return wcs[0], wcs[0].Err()
}

// to creates an address handle for the other end.
func (d *datagrams) to(remote uverbs.Endpoint) (*uverbs.AH, error) {
	attr, err := d.qp.AHAttr(remote)
	if err != nil {
		return nil, err
	}
	return d.qp.PD().CreateAH(attr)
}

// echo sends back each datagram until ctx ends.
func (d *datagrams) echo(ctx context.Context, remote uverbs.Endpoint) error {
	ah, err := d.to(remote)
	if err != nil {
		return err
	}
	for {
		data, err := d.recv(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err == nil {
			err = d.send(ctx, ah, remote.QPN, data)
		}
		if err != nil {
			return err
		}
	}
}

// ping sends a datagram until its reply arrives, five times at most: a network may lose datagrams.
func (d *datagrams) ping(ctx context.Context, remote uverbs.Endpoint) error {
	ah, err := d.to(remote)
	if err != nil {
		return err
	}
	sent := make([]byte, datagramBytes)
	pattern(sent, seedWritten)
	for range 5 {
		if err := d.send(ctx, ah, remote.QPN, sent); err != nil {
			return err
		}
		once, cancel := context.WithTimeout(ctx, time.Second)
		got, err := d.recv(once)
		lost := once.Err() != nil && ctx.Err() == nil
		cancel()
		switch {
		case lost:
			continue
		case err != nil:
			return err
		case !bytes.Equal(got, sent):
			return errDamaged
		}
		return nil
	}
	return errors.New("no reply to five datagrams")
}

// errDamaged means that data arrived, and was not what was sent.
var errDamaged = errors.New("the data that arrived is not what was sent")
