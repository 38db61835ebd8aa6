package perftest

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"net/netip"

	"github.com/goverbs/goverbs/cm"
)

// rdma_cm has no connection of connections: a server with -R listens for QPs
// where it has listened for its client, and whoever comes late finds it. So each
// request of a client of this program says which run it is of. C's clients say
// nothing: of two on one host they cannot be told apart.

// A mark is what a request says.
type clientTag struct {
	run     uint64 // 0 of C's
	control bool   // for the connection on which the two ends agree
}

// The words that go along: before a request's mark, and with a refusal.
const (
	tagPrefix = "goverbs perftest "
	busyText  = "goverbs perftest: another client is here"
)

func (m clientTag) bytes() []byte {
	b := append([]byte(tagPrefix), 'q')
	if m.control {
		b[len(tagPrefix)] = 'c'
	}
	return binary.BigEndian.AppendUint64(b, m.run)
}

// markOf reads what came with a request, which is padded.
func parseTag(privateData []byte) (m clientTag) {
	b, ours := bytes.CutPrefix(privateData, []byte(tagPrefix))
	if !ours || len(b) < 9 {
		return clientTag{}
	}
	return clientTag{run: binary.BigEndian.Uint64(b[1:]), control: b[0] == 'c'}
}

// A caller is where a request comes from.
type requester struct {
	addr netip.Addr
	tag  clientTag
}

func requesterOf(id *cm.SyncID) requester {
	c := requester{addr: id.PeerAddr().Addr()}
	if e := id.Event(); e != nil {
		c.tag = parseTag(e.PrivateData)
	}
	return c
}

// connects tells whether a request for a QP is of the client that has made the
// control connection.
func (c requester) sameClient(qp requester) bool {
	return qp.addr == c.addr && qp.tag == clientTag{run: c.tag.run}
}

// request waits for the client's next QP. Others are told that they are late.
func (e *endpoint) request(ctx context.Context, l *cm.SyncID) (*cm.SyncID, error) {
	client := e.ctl.wire.(*cmWire).requester // rdma_cm's QPs have a control connection of its kind
	for {
		id, err := l.GetRequest(ctx)
		if err != nil || client.sameClient(requesterOf(id)) {
			return id, err
		}
		_ = id.Reject([]byte(busyText)) // who has gone by now need not know
		if err := id.Close(); err != nil {
			return nil, err
		}
	}
}

var errBusy = atPeer("-p", "the server has another client: wait until it has finished, or start a second server with another port")

// refused makes plain what a server of this program says when it refuses.
func asBusy(err error) error {
	var e *cm.Error
	if errors.As(err, &e) && bytes.HasPrefix(e.PrivateData, []byte(busyText)) {
		return errBusy
	}
	return err
}
