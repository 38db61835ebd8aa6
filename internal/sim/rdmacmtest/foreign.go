package rdmacmtest

import (
	"encoding/binary"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/rdmacm"
)

// A Foreign is an open node of a program in another process. Its descriptor is a socket, which has one byte while there
// are events: see Settle.
type Foreign struct{ *file }

// OpenForeign opens the node for a program in another process, on the machine of the calling goroutine.
func (k *Kernel) OpenForeign() (*Foreign, error) {
	p, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	f := &file{k: k, theirs: p[0], signal: p[1], foreign: true}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.Current != nil {
		f.machine = k.Current()
	}
	k.nextKey++
	f.fd = firstKey + k.nextKey
	k.files[f.fd] = f
	return &Foreign{f}, nil
}

// firstKey is the first key of a file of another process. Keys replace the numbers of descriptors.
const firstKey = 1 << 30

// Key returns the file's key, which MIGRATE_ID has instead of a descriptor.
func (f *Foreign) Key() int { return f.fd }

// TakeDescriptor returns the program's descriptor, which the caller then owns. It may be called once.
func (f *Foreign) TakeDescriptor() int { return f.theirs }

// raise makes the program's descriptor readable.
func (f *file) raise() {
	if f.raised {
		return
	}
	// It fails if the program has ended. The socket has room for a byte.
	_ = unix.Send(f.signal, []byte{1}, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
	f.raised = true
}

// Settle reports, after a command, whether the program must read the byte because there are no events any more.
func (f *Foreign) Settle() (read bool) {
	f.k.mu.Lock()
	defer f.k.mu.Unlock()
	if len(f.events) > 0 {
		f.raise() // those that have migrated to the file
		return false
	}
	read, f.raised = f.raised, false
	return read
}

// violation reports a mistake of the library.
func (m *message) violation(format string, args ...any) {
	if !m.file.foreign {
		m.k.violation(format, args...)
	}
}

// The commands whose data is not a reply, or that name a descriptor.
const (
	cmdSetOption = 14
	cmdMigrate   = 18
)

// DataOf returns the offset in a frame of the address of a command's data, and how many bytes it has. It is the reply,
// which is written, or the value of an option, which is read. It returns false if the command has none.
func DataOf(frame []byte) (at, n int, input, ok bool) {
	const header, optionLength = 8, 20
	if len(frame) < header {
		return 0, 0, false, false
	}
	r, known := rules[binary.NativeEndian.Uint32(frame)]
	if !known || len(frame) != header+r.in {
		return 0, 0, false, false
	}
	if binary.NativeEndian.Uint32(frame) == cmdSetOption {
		return header, int(min(binary.NativeEndian.Uint32(frame[header+optionLength:]), 1<<16)), true, true
	}
	return header + r.resp, int(binary.NativeEndian.Uint16(frame[6:])), false, r.reply > 0
}

// DescriptorOf returns the descriptor that a frame names.
func DescriptorOf(frame []byte) (fd []byte, ok bool) {
	const at = 8 + 12
	if len(frame) < at+4 || binary.NativeEndian.Uint32(frame) != cmdMigrate {
		return nil, false
	}
	return frame[at : at+4], true
}

var _ rdmacm.Kernel = (*Foreign)(nil)
