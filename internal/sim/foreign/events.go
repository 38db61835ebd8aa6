package foreign

import (
	"encoding/binary"

	"github.com/goverbs/goverbs/internal/uapi"
)

// events counts the events that the program has read: when it destroys an object, it waits until it has acknowledged
// as many. Events of an object that was destroyed are dropped, as the kernel does.
type events struct {
	users  map[object]uint64 // user handles
	counts map[uint64]*count // by user handle
}

// An object is one that has events.
type object struct{ kind, handle uint32 }

// A count is how many events were read.
type count struct{ completions, others uint32 }

// read counts an event that the program has read, and replies whether its object exists. Events of ports have the
// number of a port.
func (e *events) read(user uint64, completion bool) reply {
	const maxPort = 255
	r := reply{kind: 1, fd: -1}
	c := e.counts[user]
	switch {
	case c == nil && (completion || user > maxPort):
		r.kind = 0
	case c == nil:
	case completion:
		c.completions++
	default:
		c.others++
	}
	return r
}

// The attributes of the commands that create and destroy objects with events.
var (
	creates = map[[2]uint16][2]uint16{
		{uapi.UVERBS_OBJECT_CQ, uapi.UVERBS_METHOD_CQ_CREATE}: {uapi.UVERBS_ATTR_CREATE_CQ_HANDLE,
			uapi.UVERBS_ATTR_CREATE_CQ_USER_HANDLE},
		{uapi.UVERBS_OBJECT_QP, uapi.UVERBS_METHOD_QP_CREATE}: {uapi.UVERBS_ATTR_CREATE_QP_HANDLE,
			uapi.UVERBS_ATTR_CREATE_QP_USER_HANDLE},
		{uapi.UVERBS_OBJECT_SRQ, uapi.UVERBS_METHOD_SRQ_CREATE}: {uapi.UVERBS_ATTR_CREATE_SRQ_HANDLE,
			uapi.UVERBS_ATTR_CREATE_SRQ_USER_HANDLE},
	}
	destroys = map[[2]uint16][2]uint16{
		{uapi.UVERBS_OBJECT_CQ, uapi.UVERBS_METHOD_CQ_DESTROY}: {uapi.UVERBS_ATTR_DESTROY_CQ_HANDLE,
			uapi.UVERBS_ATTR_DESTROY_CQ_RESP},
		{uapi.UVERBS_OBJECT_QP, uapi.UVERBS_METHOD_QP_DESTROY}: {uapi.UVERBS_ATTR_DESTROY_QP_HANDLE,
			uapi.UVERBS_ATTR_DESTROY_QP_RESP},
		{uapi.UVERBS_OBJECT_SRQ, uapi.UVERBS_METHOD_SRQ_DESTROY}: {uapi.UVERBS_ATTR_DESTROY_SRQ_HANDLE,
			uapi.UVERBS_ATTR_DESTROY_SRQ_RESP},
	}
)

// executed notes that a command has created an object, or completes the reply of one that has destroyed it.
func (e *events) executed(c *command) {
	method := [2]uint16{c.object, c.method}
	if ids, ok := creates[method]; ok {
		user := c.input(ids[1])
		e.users[object{uint32(c.object), uint32(c.input(ids[0]))}] = user
		e.counts[user] = &count{}
	}
	if ids, ok := destroys[method]; ok {
		o := object{uint32(c.object), uint32(c.input(ids[0]))}
		user := e.users[o]
		n := e.counts[user]
		delete(e.users, o)
		delete(e.counts, user)
		if i := c.index(ids[1]); i >= 0 && n != nil {
			var b []byte
			if c.object == uapi.UVERBS_OBJECT_CQ {
				b = binary.NativeEndian.AppendUint32(b, n.completions)
			}
			copy(c.data[i], binary.NativeEndian.AppendUint32(b, n.others))
		}
	}
}
