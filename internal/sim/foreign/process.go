package foreign

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// errMemory means that a program has no memory at an address.
var errMemory = errors.New("the process has no such memory")

// A process is the memory of a program.
type process struct {
	pid  int
	mem  *os.File
	maps *os.File

	// What view has returned.
	at         uint64
	old, fresh []byte
}

// openProcess opens the memory of the process at the other end of a socket. The files refer to the memory, not to the
// number of the process, which may be reused.
func openProcess(fd int) (*process, error) {
	cred, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
	if err != nil {
		return nil, err
	}
	p := &process{pid: int(cred.Pid)}
	dir := fmt.Sprintf("/proc/%d/", cred.Pid)
	if p.mem, err = os.OpenFile(dir+"mem", os.O_RDWR, 0); err != nil {
		return nil, err
	}
	if p.maps, err = os.Open(dir + "maps"); err != nil {
		return nil, errors.Join(err, p.mem.Close())
	}
	return p, nil
}

func (p *process) close() error { return errors.Join(p.mem.Close(), p.maps.Close()) }

// read fills b with the memory at an address.
func (p *process) read(addr uint64, b []byte) error {
	if addr > 1<<63-1 {
		return errMemory
	}
	if n, err := p.mem.ReadAt(b, int64(addr)); n < len(b) {
		return errors.Join(errMemory, err)
	}
	return nil
}

// write writes b to an address.
func (p *process) write(addr uint64, b []byte) error {
	if len(b) == 0 {
		return nil
	}
	if addr > 1<<63-1 {
		return errMemory
	}
	if n, err := p.mem.WriteAt(b, int64(addr)); n < len(b) {
		return errors.Join(errMemory, err)
	}
	return nil
}

// View implements ioctltest.Process.
func (p *process) View(addr uint64, n int) ([]byte, error) {
	p.Flush()
	if cap(p.fresh) < n {
		p.old, p.fresh = make([]byte, n), make([]byte, n)
	}
	b := p.fresh[:n:n]
	if err := p.read(addr, b); err != nil {
		return nil, err
	}
	p.at, p.old, p.fresh = addr, append(p.old[:0], b...), b
	return b, nil
}

// Flush implements ioctltest.Process. It writes from the first byte that has changed to the last one. The memory of a
// process that ends is lost.
func (p *process) Flush() {
	first, last := 0, len(p.old)
	if !bytes.Equal(p.old, p.fresh[:last]) {
		for p.old[first] == p.fresh[first] {
			first++
		}
		for p.old[last-1] == p.fresh[last-1] {
			last--
		}
		_ = p.write(p.at+uint64(first), p.fresh[first:last]) // later reads of the memory fail, too
	}
	p.old = p.old[:0]
}

// Mapped implements ioctltest.Process.
func (p *process) Mapped(addr, n uint64, write bool) bool {
	if n == 0 {
		return true
	}
	list, err := io.ReadAll(io.NewSectionReader(p.maps, 0, maxMaps))
	if err != nil {
		return false
	}
	end := addr + n
	for line := range bytes.Lines(list) {
		var low, high uint64
		var access string
		if _, err := fmt.Sscanf(string(line), "%x-%x %s", &low, &high, &access); err != nil || low > addr {
			return false
		}
		if high <= addr {
			continue
		}
		if len(access) < 2 || access[0] != 'r' || write && access[1] != 'w' {
			return false
		}
		if addr = high; addr >= end {
			return true
		}
	}
	return false
}

// maxMaps is how much of the list of mappings is read, in bytes.
const maxMaps = 4 << 20
