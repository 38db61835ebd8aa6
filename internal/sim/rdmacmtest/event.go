package rdmacmtest

import (
	"encoding/binary"
	"slices"

	"github.com/goverbs/goverbs/internal/rdmacm"
	"github.com/goverbs/goverbs/internal/uapi"
	"golang.org/x/sys/unix"
)

// An event is a queued event with its objects.
type event struct {
	resp  uapi.RdmaUcmEventResp
	id    *id
	child *id    // of a CONNECT_REQUEST
	group *group // of a MULTICAST event
}

// post posts an event without parameters. An id with uid 0 gets none: the
// kernel drops its events.
func (k *Kernel) post(i *id, number uint32, status int32) {
	if i.uid == 0 || k.ids[i.n] != i {
		return
	}
	k.queue(&event{id: i, resp: uapi.RdmaUcmEventResp{Uid: i.uid, Id: i.n, Event: number, Status: uint32(status)}})
}

// postConn posts an event with connection parameters. Private data is padded
// with zeros to the length of its field in the message.
func (k *Kernel) postConn(i *id, number uint32, status int32, p uapi.RdmaUcmConnParam, room uint8,
	ece uapi.RdmaUcmEce) {
	if i.uid == 0 || k.ids[i.n] != i {
		return
	}
	e := &event{id: i, resp: uapi.RdmaUcmEventResp{Uid: i.uid, Id: i.n, Event: number, Status: uint32(status), Ece: ece}}
	p.PrivateDataLen, p.Valid = room, 0
	copy(e.resp.Param[:], bytesOf(&p))
	k.queue(e)
}

// postUD posts an event with datagram parameters.
func (k *Kernel) postUD(i *id, number uint32, status int32, p uapi.RdmaUcmUdParam) {
	if i.uid == 0 || k.ids[i.n] != i {
		return
	}
	e := &event{id: i, resp: uapi.RdmaUcmEventResp{Uid: i.uid, Id: i.n, Event: number, Status: uint32(status)}}
	copy(e.resp.Param[:], bytesOf(&p))
	k.queue(e)
}

// queue appends an event to the queue of the id's file, or holds it.
func (k *Kernel) queue(e *event) {
	if k.hold[e.resp.Event] {
		k.held = append(k.held, e)
		return
	}
	f := e.id.file
	f.events = append(f.events, e)
	if f.foreign {
		f.raise()
		return
	}
	one := binary.NativeEndian.AppendUint64(nil, 1)
	if _, err := unix.Write(f.signal, one); err != nil {
		k.violation("signalling an event: %v", err)
	}
}

func getEvent(m *message) unix.Errno {
	f := m.file
	if len(f.events) == 0 {
		return unix.EAGAIN
	}
	e := f.events[0]
	f.events = f.events[1:]
	reply(m, e.resp)
	e.id.reported++
	if e.group != nil {
		e.group.reported++
	}
	if e.child != nil {
		e.child.owned = true
		e.id.backlog++
		if len(e.id.waiting) > 0 {
			w := e.id.waiting[0]
			e.id.waiting = e.id.waiting[1:]
			m.k.request(e.id, w.id, w.m)
		}
	}
	return 0
}

// dropEvents removes the events of an id from the queues, and returns those with a
// child that was not reported to the library.
func (k *Kernel) dropEvents(i *id) (unborn []*event) {
	mine := func(e *event) bool {
		if e.id == i && e.child != nil && k.ids[e.child.n] == e.child {
			unborn = append(unborn, e)
		}
		return e.id == i
	}
	i.file.events = slices.DeleteFunc(i.file.events, mine)
	k.held = slices.DeleteFunc(k.held, mine)
	return unborn
}

// moved moves the events of an id from one queue to another.
func moved(i *id, from, to []*event) (rest, all []*event) {
	for _, e := range from {
		if e.id == i {
			to = append(to, e)
		} else {
			rest = append(rest, e)
		}
	}
	return rest, to
}

// Hold holds events of these kinds until [Kernel.Release].
func (k *Kernel) Hold(events ...uint32) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, e := range events {
		k.hold[e] = true
	}
}

// Release delivers held events, and ends holding.
func (k *Kernel) Release() {
	k.mu.Lock()
	defer k.mu.Unlock()
	clear(k.hold)
	all := k.held
	k.held = nil
	for _, e := range all {
		k.queue(e)
	}
}

// Post posts an event of an id without parameters, such as ADDR_CHANGE.
func (k *Kernel) Post(n, number uint32, status int32) {
	k.mu.Lock()
	defer k.mu.Unlock()
	i := k.ids[n]
	if i == nil {
		k.violation("Post for id %d, which does not exist", n)
		return
	}
	k.post(i, number, status)
}

// Inject appends an arbitrary event, such as one that no kernel reports, to the
// queue of an id's file.
func (k *Kernel) Inject(n uint32, resp uapi.RdmaUcmEventResp) {
	k.mu.Lock()
	defer k.mu.Unlock()
	i := k.ids[n]
	if i == nil {
		k.violation("Inject for id %d, which does not exist", n)
		return
	}
	k.queue(&event{id: i, resp: resp})
}

// RemoveDevice removes the device of the first machine.
func (k *Kernel) RemoveDevice() { k.Remove(&k.Machine) }

// Remove removes the device of a machine: ids that are bound to it get
// DEVICE_REMOVAL, and can then only be destroyed.
func (k *Kernel) Remove(m *Machine) {
	k.mu.Lock()
	defer k.mu.Unlock()
	m.gone = true
	for _, i := range k.ids {
		if i.device && i.machine == m {
			k.post(i, rdmacm.EventDeviceRemoval, 0)
			i.dead = true
		}
	}
}
