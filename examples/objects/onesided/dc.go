package onesided

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/goverbs/goverbs/uverbs"
)

// dc is the dynamically connected transport of ConnectX. Each of a client's ends is a DCT with a
// random access key. A server needs as many DCIs as it has requests at a time, however many
// clients there are.
type dc struct{}

func (dc) name() string { return "dc" }

func (dc) open(p *Pool) (end, error) {
	d, err := newDCT(p)
	if err != nil {
		return nil, err
	}
	return d, nil
}

// accept returns the address of a DCI. The client need not connect to it, but knows from the
// reply that the server uses tokens.
func (dc) accept(p *Pool, peer string) (link, string, error) {
	key, remote, err := parseDCT(peer)
	if err != nil {
		return nil, "", err
	}
	d, err := p.takeDCI()
	if err != nil {
		return nil, "", err
	}
	defer p.putDCI(d)
	local, err := d.qp.Endpoint()
	if err != nil {
		return nil, "", err
	}
	attr, err := d.qp.AHAttr(remote)
	if err != nil {
		return nil, "", err
	}
	ah, err := p.pd.CreateAH(attr)
	if err != nil {
		return nil, "", err
	}
	return &dcLink{pool: p, ah: ah, dctn: remote.QPN, key: key}, local.String(), nil
}

// A dct is a client's end.
type dct struct {
	cq   *uverbs.CQ
	srq  *uverbs.SRQ
	qp   *uverbs.QP
	text string
	up   bool
}

func newDCT(p *Pool) (*dct, error) {
	var random [8]byte
	rand.Read(random[:]) // never fails
	key := binary.NativeEndian.Uint64(random[:])
	cq, err := p.dev.CreateCQ(uverbs.CQConfig{Entries: 1})
	if err != nil {
		return nil, err
	}
	d := &dct{cq: cq}
	if d.srq, err = p.pd.CreateSRQ(uverbs.SRQConfig{MaxWR: 1}); err != nil { // a DCT needs one
		return nil, errors.Join(err, d.Close())
	}
	d.qp, err = p.pd.CreateQP(uverbs.QPConfig{Type: uverbs.DCT, RecvCQ: cq, SRQ: d.srq, DCKey: key,
		Access: uverbs.RemoteRead | uverbs.RemoteWrite})
	if err == nil {
		err = d.qp.Ready()
	}
	var local uverbs.Endpoint
	if err == nil {
		local, err = d.qp.Endpoint()
	}
	if err != nil {
		return nil, errors.Join(err, d.Close())
	}
	d.text = fmt.Sprintf("%016x:%v", key, local)
	return d, nil
}

// parseDCT parses the peer of a token.
func parseDCT(text string) (key uint64, remote uverbs.Endpoint, err error) {
	head, tail, _ := strings.Cut(text, ":")
	if key, err = strconv.ParseUint(head, 16, 64); err != nil || len(head) != 16 {
		return 0, remote, ErrToken
	}
	return key, remote, remote.UnmarshalText([]byte(tail))
}

func (d *dct) peer() string    { return d.text }
func (d *dct) connected() bool { return d.up }

func (d *dct) connect(string) error {
	d.up = true
	return nil
}

// Close ends all access to this machine's memory through the DCT.
func (d *dct) Close() error {
	if d.qp != nil {
		if err := d.qp.Close(); err != nil {
			return err
		}
	}
	if d.srq != nil {
		if err := d.srq.Close(); err != nil {
			return err
		}
	}
	return d.cq.Close()
}

// A dci sends to any DCT.
type dci struct {
	cq *uverbs.CQ
	qp *uverbs.QP
}

// takeDCI returns a DCI for one request.
func (p *Pool) takeDCI() (*dci, error) {
	select {
	case d := <-p.dcis:
		return d, nil
	default:
	}
	cq, err := p.dev.CreateCQ(uverbs.CQConfig{Entries: 1})
	if err != nil {
		return nil, err
	}
	d := &dci{cq: cq}
	d.qp, err = p.pd.CreateQP(uverbs.QPConfig{Type: uverbs.DCI, SendCQ: cq, MaxSendWR: 1})
	if err == nil {
		err = d.qp.Ready()
	}
	if err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

// putDCI keeps a DCI that no request uses. A request has a buffer, so that there is room.
func (p *Pool) putDCI(d *dci) { p.dcis <- d }

func (d *dci) Close() error {
	if d.qp != nil {
		if err := d.qp.Close(); err != nil {
			return err
		}
	}
	return d.cq.Close()
}

// A dcLink leads to a DCT.
type dcLink struct {
	pool   *Pool
	ah     *uverbs.AH
	dctn   uint32
	key    uint64
	failed *dci // its request may still be using a buffer
}

func (l *dcLink) transfer(ctx context.Context, op uverbs.Opcode, b uverbs.SGE, t Token) error {
	d, err := l.pool.takeDCI()
	if err != nil {
		return err
	}
	wr := t.request(op, b)
	wr.AH, wr.QPN, wr.DCKey = l.ah, l.dctn, l.key
	if err := move(ctx, d.qp, d.cq, wr); err != nil {
		l.failed = d
		return err
	}
	l.pool.putDCI(d)
	return nil
}

func (l *dcLink) Close() error {
	if l.failed != nil {
		if err := l.failed.Close(); err != nil {
			return err
		}
		l.failed = nil
	}
	return l.ah.Close()
}
