package perftest

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"net/netip"

	"github.com/goverbs/goverbs/cm"
)

// With -R a server listens for the QPs on the port on which it listened for the
// control connection, so that another client may connect in between. Therefore
// the private data of each request contains the client's run. C's clients send
// none; two of them on one host cannot be distinguished.

// A clientTag identifies the client and the purpose of a connection request.
type clientTag struct {
	run     uint64 // 0: a C client
	control bool   // for the control connection
}

// The texts in private data: the start of a request's, and that of a rejection.
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

// parseTag parses the private data of a request, which is padded.
func parseTag(privateData []byte) (m clientTag) {
	b, ours := bytes.CutPrefix(privateData, []byte(tagPrefix))
	if !ours || len(b) < 9 {
		return clientTag{}
	}
	return clientTag{run: binary.BigEndian.Uint64(b[1:]), control: b[0] == 'c'}
}

// A requester is the origin of a connection request.
type requester struct {
	addr netip.Addr
	tag  clientTag
}

func requesterOf(id *cm.SyncID) requester {
	c := requester{addr: id.RemoteAddr().Addr()}
	if e := id.Event(); e != nil {
		c.tag = parseTag(e.PrivateData)
	}
	return c
}

// sameClient reports whether a request for a QP comes from the client of the control
// connection c.
func (c requester) sameClient(qp requester) bool {
	return qp.addr == c.addr && qp.tag == clientTag{run: c.tag.run}
}

// request waits for the client's next request for a QP. It rejects requests of other
// clients.
func (e *endpoint) request(ctx context.Context, l *cm.SyncID) (*cm.SyncID, error) {
	client := e.ctl.wire.(*cmWire).requester // -R implies a control connection over rdma_cm
	for {
		id, err := l.GetRequest(ctx)
		if err != nil || client.sameClient(requesterOf(id)) {
			return id, err
		}
		_ = id.Reject([]byte(busyText)) // fails if the client has gone
		if err := id.Close(); err != nil {
			return nil, err
		}
	}
}

var errBusy = atPeer("-p",
	"the server has another client: wait until it has finished, or start a second server with another port")

// asBusy returns errBusy in place of the error of a connection that a server of this
// program rejected because it has another client.
func asBusy(err error) error {
	var e *cm.Error
	if errors.As(err, &e) && bytes.HasPrefix(e.PrivateData, []byte(busyText)) {
		return errBusy
	}
	return err
}
