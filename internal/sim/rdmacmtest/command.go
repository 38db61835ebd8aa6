package rdmacmtest

import (
	"encoding/binary"
	"fmt"

	"github.com/goverbs/goverbs/internal/rdmacm"
	"golang.org/x/sys/unix"
)

// A rule describes what the kernel requires of a command. The sizes are those
// of the C structs, independent of the Go types.
type rule struct {
	name  string
	in    int // bytes of the payload
	reply int // minimum size of the reply
	resp  int // offset of the reply's address in the payload
	id    int // offset of the id; -1: none
	run   func(*message) unix.Errno
}

var rules map[uint32]rule

func init() { // a composite literal would refer to itself through the handlers
	rules = map[uint32]rule{
		0:  {"CREATE_ID", 24, 4, 8, -1, createID},
		1:  {"DESTROY_ID", 16, 4, 0, 8, destroyID},
		4:  {"RESOLVE_ROUTE", 8, 0, 0, 0, resolveRoute},
		6:  {"CONNECT", 288, 0, 0, 272, connect},
		7:  {"LISTEN", 8, 0, 0, 0, listen},
		8:  {"ACCEPT", 296, 0, 0, 280, accept},
		9:  {"REJECT", 264, 0, 0, 0, reject},
		10: {"DISCONNECT", 4, 0, 0, 0, disconnect},
		11: {"INIT_QP_ATTR", 16, 144, 0, 8, initQPAttr},
		12: {"GET_EVENT", 8, 324, 0, -1, getEvent},
		14: {"SET_OPTION", 24, 0, 0, 8, setOption},
		15: {"NOTIFY", 8, 0, 0, 0, notify},
		17: {"LEAVE_MCAST", 16, 4, 0, -1, leave},
		18: {"MIGRATE_ID", 16, 4, 0, -1, migrate},
		19: {"QUERY", 16, 8, 0, 8, query},
		20: {"BIND", 136, 0, 0, 0, bind},
		21: {"RESOLVE_ADDR", 272, 0, 0, 0, resolveAddr},
		22: {"JOIN_MCAST", 152, 4, 0, 16, join},
		23: {"RESOLVE_IB_SERVICE", 88, 0, 0, 0, resolveService},
		24: {"WRITE_CM_EVENT", 320, 0, 0, 0, writeEvent},
	}
}

// A message is a command that passed the checks.
type message struct {
	k     *Kernel
	file  *file
	call  rdmacm.Call
	in    []byte // the payload
	reply []byte
	id    *id // for commands on an id
}

// Command executes one command.
func (f *file) Command(c rdmacm.Call) unix.Errno {
	k := f.k
	frame := c.Frame()
	name := ""
	if len(frame) >= 8 {
		name = rules[c.Header().Cmd].name
	}
	k.mu.Lock()
	before := k.Before
	k.mu.Unlock()
	if before != nil && name != "GET_EVENT" {
		before(name)
	}
	if c.Ended() {
		return unix.EINVAL
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case k.Stale:
		return unix.EACCES
	case len(frame) < 8:
		return unix.EINVAL
	}
	r, known := rules[c.Header().Cmd]
	if !known {
		if !f.foreign {
			k.violation("command %d", c.Header().Cmd)
		}
		return unix.EINVAL
	}
	if errno := k.planned(r.name); errno != 0 {
		return errno
	}
	m := &message{k: k, file: f, call: c, in: frame[8:]}
	if errno := m.check(r); errno != 0 {
		return errno
	}
	return r.run(m)
}

// planned returns the failure that the test has set.
func (k *Kernel) planned(name string) unix.Errno {
	if name != "GET_EVENT" {
		k.log = append(k.log, name)
		if k.count++; k.count == k.FailAt {
			return k.FailWith
		}
	}
	return k.Refuse[name]
}

// check checks the command against its rule, and finds its id.
func (m *message) check(r rule) unix.Errno {
	h := m.call.Header()
	bad := func(errno unix.Errno, format string, args ...any) unix.Errno {
		m.violation("%s: %s", m.call, fmt.Sprintf(format, args...))
		return errno
	}
	switch {
	case len(m.in) != int(h.In):
		return bad(unix.EINVAL, "the header has length %d, but %d bytes follow", h.In, len(m.in))
	case len(m.in) != r.in:
		return bad(unix.EINVAL, "%d bytes, the kernel has %d", len(m.in), r.in)
	case int(h.Out) < r.reply:
		return bad(unix.ENOSPC, "room for %d bytes of a reply of %d", h.Out, r.reply)
	case r.reply == 0 && h.Out != 0:
		return bad(unix.EINVAL, "a reply address for a command without a reply")
	}
	if r.reply > 0 {
		at := binary.NativeEndian.Uint64(m.in[r.resp:])
		if m.reply = m.call.Memory(at, int(h.Out)); m.reply == nil {
			return bad(unix.EFAULT, "the reply has no memory at %#x", at)
		}
	}
	if r.id >= 0 {
		var errno unix.Errno
		m.id, errno = m.k.find(m.file, binary.NativeEndian.Uint32(m.in[r.id:]))
		if errno == 0 && m.id.dead && r.name != "DESTROY_ID" {
			return unix.ENXIO // its device was removed
		}
		return errno
	}
	return 0
}

// find looks up an id as the kernel does.
func (k *Kernel) find(f *file, n uint32) (*id, unix.Errno) {
	i := k.ids[n]
	switch {
	case i == nil:
		return nil, unix.ENOENT
	case i.file != f:
		return nil, unix.EINVAL
	}
	return i, 0
}
