package devicetest

import (
	"encoding/binary"
	"errors"
	"testing"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/internal/sim/features"
	"github.com/goverbs/goverbs/uverbs"
)

// needXRC skips the test if the device has no XRC domains.
func needXRC(t *testing.T) {
	t.Helper()
	dev := must(uverbs.Open(rdmaDevice()))(t)
	defer dev.Close()
	x, err := dev.OpenXRCD(nil, 0)
	if errors.Is(err, uverbs.ErrNotSupported) {
		features.Missing(t, features.XRC, err)
	}
	check(t, err)
	check(t, x.Close())
}

// xrcClient requests a connection that can send to SRQs.
func (k talk) xrcClient(t *testing.T, l *cm.ID) (client, child *cm.ID) {
	t.Helper()
	client = must(k.CreateIDFor(cm.PSIB, uverbs.XRCSend))(t)
	closing(t, client)
	k.resolve(t, client, l.LocalAddr())
	check(t, client.CreateQP(nil, uverbs.QPConfig{MaxSendWR: 4, MaxInline: 64}))
	check(t, client.Connect(nil))
	child = k.good(t, cm.EventConnectRequest, nil).ID
	closing(t, child)
	return client, child
}

// TestDeviceXRC lets two clients send to the SRQ of one connection. The replies contain its number.
func TestDeviceXRC(t *testing.T) {
	begin(t)
	needXRC(t)
	k := newTalk(t)
	l := must(k.CreateIDFor(cm.PSIB, uverbs.XRCRecv))(t)
	closing(t, l)
	check(t, l.Bind(at(deviceIP, 0)))
	check(t, l.Listen(0))
	check(t, l.CreateSRQ(nil, uverbs.SRQConfig{MaxWR: 8}))
	isError(t, l.CreateSRQ(nil, uverbs.SRQConfig{MaxWR: 8}), []error{uverbs.ErrInvalid}, "has an SRQ")
	mr := buffer(t, l, 128)
	for n := range uint64(2) {
		check(t, l.PostRecv(n, mr.SGE(int(64*n), 64)))
		client, child := k.xrcClient(t, l)
		isError(t, child.CreateQP(nil, small()), []error{uverbs.ErrInvalid}, "no queues")
		check(t, child.CreateQP(nil, uverbs.QPConfig{}))
		number := binary.BigEndian.AppendUint32(nil, l.SRQ().SRQN())
		check(t, child.Accept(&cm.ConnParam{PrivateData: number, RNRRetryCount: 7}))
		e := k.good(t, cm.EventEstablished, client)
		k.good(t, cm.EventEstablished, child)
		srqn := binary.BigEndian.Uint32(e.PrivateData)
		must(client.QP().PostSend(uverbs.SendWR{WRID: 9, Opcode: uverbs.OpSend, Flags: uverbs.Signaled,
			Inline: []byte{byte(n)}, RemoteSRQN: srqn}))(t)
		must(client.SendComp(k.ctx))(t)
		if wc := must(l.RecvComp(k.ctx))(t); wc.WRID != n || wc.QPNum != child.QP().QPN() || mr.Bytes()[64*n] != byte(n) {
			t.Errorf("connection %d: %+v", n, wc)
		}
		isError(t, client.PostRecv(1, mr.SGE(0, 64)), []error{uverbs.ErrNoQueue})
		isError(t, child.PostSend(1, 0, mr.SGE(0, 64)), []error{uverbs.ErrNoQueue})
		check(t, client.Disconnect())
		k.disconnected(t, child)
		check(t, child.Disconnect())
		k.disconnected(t, client)
	}
}

// TestDeviceXRCEnds checks that the QP and the SRQ of an id can be closed in either order and created again.
func TestDeviceXRCEnds(t *testing.T) {
	begin(t)
	needXRC(t)
	ctx := limit(t)
	s := must(cm.CreateEP(ctx, &cm.AddrInfo{Flags: cm.Passive, QPType: uverbs.XRCRecv, Src: at(deviceIP, 0)}, nil, nil))(t)
	closing(t, s)
	if s.PortSpace() != cm.PSIB {
		t.Errorf("the id is in the port space %v", s.PortSpace())
	}
	for _, ends := range [][2]func() error{{s.DestroyQP, s.DestroySRQ}, {s.DestroySRQ, s.DestroyQP}} {
		check(t, s.CreateQP(nil, uverbs.QPConfig{}))
		check(t, s.CreateSRQ(nil, uverbs.SRQConfig{MaxWR: 8}))
		if s.RecvCQ() == nil || s.SendCQ() != nil {
			t.Errorf("queues of completions: %v of receives, %v of sends", s.RecvCQ(), s.SendCQ())
		}
		check(t, ends[0]())
		check(t, ends[1]())
		if s.QP() != nil || s.SRQ() != nil || s.RecvCQ() != nil {
			t.Errorf("left: %v, %v, %v", s.QP(), s.SRQ(), s.RecvCQ())
		}
	}
}
