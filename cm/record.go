package cm

import (
	"net/netip"

	"github.com/goverbs/goverbs/internal/uapi"
)

// A record is an event as it was read, with the id that it is for.
type record struct {
	node *node
	id   *ID
	mc   *Membership // if the event is for a membership
	raw  uapi.RdmaUcmEventResp

	terminal bool // the event has ended a SyncID
}

func (r *record) typ() EventType { return EventType(r.raw.Event) }

// read waits for an event and stores it in r. If r is nil, it allocates a record. For an
// event of a closed id, which it discards, read returns nil.
func (n *node) read(r *record) (*record, error) {
	if r == nil {
		r = &record{}
	}
	r.node, r.id, r.mc, r.terminal = n, nil, nil, false
	if err := n.file.NextEvent(&r.raw); err != nil {
		return nil, err
	}
	switch v := lookup(r.raw.Uid).(type) {
	case *ID:
		r.id = v
	case *Membership:
		r.id, r.mc = v.id, v
	default:
		r.discard(nil)
		return nil, nil
	}
	return r, nil
}

// discard handles an event that no caller will receive. If it is a connection
// request, discard rejects it in the background. The client receives the reason, if why
// has one: see refusalOf. It does not wait.
func (r *record) discard(why error) {
	if r.typ() == EventConnectRequest {
		r.node.rejects.add(r.node.file, rejectedRequest{r.raw.Id, refusalOf(why)})
	}
}

// reject rejects a request and waits until the kernel has done so.
func (r *record) reject() {
	if r.typ() == EventConnectRequest {
		r.node.rejects.reject(r.node.file, rejectedRequest{id: r.raw.Id})
	}
}

// peer returns the address by which the peer of a connection request is counted: its IP
// address without zone or, in the address family of InfiniBand, its GID.
func (r *record) peer() (netip.Addr, error) {
	a, err := r.node.file.QueryAddr(r.raw.Id)
	if err == nil {
		if peer := parseSockaddr(a.DstAddr[:]); peer.IsValid() {
			return hostAddr(peer.Addr()), nil
		}
		a, err = r.node.file.QueryGID(r.raw.Id)
	}
	if err != nil {
		return netip.Addr{}, wrap("query address of", "the peer", err, "")
	}
	ib, _ := parseIBAddr(a.DstAddr[:]) // else the zero GID: a peer like others
	return hostAddr(netip.AddrFrom16(ib.GID)), nil
}
