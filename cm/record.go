package cm

import "github.com/goverbs/goverbs/internal/uapi"

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
		r.discard()
		return nil, nil
	}
	return r, nil
}

// discard handles an event that no caller will receive. If it is a connection
// request, discard rejects it in the background: its listener is closed, or has too
// many of them. It does not wait.
func (r *record) discard() {
	if r.typ() == EventConnectRequest {
		r.node.rejects.add(r.node.file, r.raw.Id)
	}
}

// reject rejects a request and waits until the kernel has done so.
func (r *record) reject() {
	if r.typ() == EventConnectRequest {
		reject(r.node.file, r.raw.Id)
	}
}
