//go:build speed

package compare

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// A stepper executes a thread of another process instruction by instruction between marks: calls of getuid(2), of which
// each second one ends a part. It must be used by one goroutine, which is locked to its thread.
type stepper struct {
	tid int
	// counts decides which instructions of a part are counted.
	counts func(regs *unix.PtraceRegs) bool
	// trapped is called when an instruction is interrupted by a signal.
	trapped func()
	until   uint64 // where to run to without counting, or 0
	// functions are the instructions of each function, by part. They are known of Go only.
	functions []map[string]int
}

// attach stops the thread.
func attach(tid int) (*stepper, error) {
	if err := unix.PtraceSeize(tid); err != nil {
		return nil, fmt.Errorf("attach to thread %d: %w", tid, err)
	}
	if err := unix.PtraceInterrupt(tid); err != nil {
		return nil, err
	}
	s := &stepper{tid: tid, trapped: func() {}}
	if _, err := s.wait(); err != nil {
		return nil, err
	}
	return s, unix.PtraceSetOptions(tid, unix.PTRACE_O_TRACESYSGOOD)
}

// errEnded is returned when the thread has ended.
var errEnded = errors.New("the program has ended")

func (s *stepper) wait() (unix.WaitStatus, error) {
	var status unix.WaitStatus
	if _, err := unix.Wait4(s.tid, &status, unix.WALL, nil); err != nil {
		return 0, err
	}
	if !status.Stopped() {
		return status, fmt.Errorf("%w: %#x", errEnded, status)
	}
	return status, nil
}

const markCall = unix.SYS_GETUID

// parts returns how many instructions each part takes, until there are n.
func (s *stepper) parts(n int) (all []int, err error) {
	for len(all) < n {
		if err := s.toMark(); err != nil {
			return all, err
		}
		s.functions = append(s.functions, make(map[string]int))
		count, err := s.part()
		if err != nil {
			return all, err
		}
		all = append(all, count)
	}
	return all, unix.PtraceDetach(s.tid)
}

// toMark runs the thread to the end of the call of a mark.
func (s *stepper) toMark() error {
	signal := 0
	for {
		if err := unix.PtraceSyscall(s.tid, signal); err != nil {
			return err
		}
		status, err := s.wait()
		if err != nil {
			return err
		}
		if signal = 0; status.StopSignal() != unix.SIGTRAP|0x80 {
			signal = deliver(status)
			continue
		}
		var regs unix.PtraceRegs
		if err := unix.PtraceGetRegs(s.tid, &regs); err != nil {
			return err
		}
		if enters := -int64(regs.Rax) == int64(unix.ENOSYS); !enters && regs.Orig_rax == markCall {
			return nil
		}
	}
}

// deliver returns the signal that a stop delivers, or 0.
func deliver(status unix.WaitStatus) int {
	if sig := status.StopSignal(); status.TrapCause() <= 0 && sig != unix.SIGTRAP && sig != unix.SIGSTOP {
		return int(sig)
	}
	return 0
}

// part executes a part, up to the mark that ends it.
func (s *stepper) part() (count int, err error) {
	var regs unix.PtraceRegs
	for signal := 0; ; {
		if err := unix.PtraceGetRegs(s.tid, &regs); err != nil {
			return 0, err
		}
		if regs.Rax == markCall && s.atCall(uintptr(regs.Rip)) {
			return count, s.skipCall()
		}
		if signal == 0 && s.counts(&regs) {
			count++
		}
		if s.until != 0 {
			if err := s.run(uintptr(s.until)); err != nil {
				return 0, err
			}
			s.until = 0
			continue
		}
		if signal, err = s.step(signal); err != nil {
			return 0, err
		}
		if signal != 0 {
			s.trapped()
		}
	}
}

// step executes an instruction, or delivers a signal. It returns the signal that interrupts the next instruction.
func (s *stepper) step(signal int) (next int, err error) {
	if _, _, errno := unix.Syscall6(unix.SYS_PTRACE, unix.PTRACE_SINGLESTEP, uintptr(s.tid), 0, uintptr(signal), 0,
		0); errno != 0 {
		return 0, errno
	}
	status, err := s.wait()
	if err != nil {
		return 0, err
	}
	return deliver(status), nil
}

// run runs the thread to an address.
func (s *stepper) run(to uintptr) error {
	var old [1]byte
	if _, err := unix.PtracePeekText(s.tid, to, old[:]); err != nil {
		return err
	}
	const breakpoint = 0xcc
	if _, err := unix.PtracePokeText(s.tid, to, []byte{breakpoint}); err != nil {
		return err
	}
	for signal := 0; ; {
		if err := unix.PtraceCont(s.tid, signal); err != nil {
			return err
		}
		status, err := s.wait()
		if err != nil {
			return err
		}
		if signal = deliver(status); status.StopSignal() == unix.SIGTRAP && status.TrapCause() <= 0 {
			break
		}
	}
	if _, err := unix.PtracePokeText(s.tid, to, old[:]); err != nil {
		return err
	}
	var regs unix.PtraceRegs
	if err := unix.PtraceGetRegs(s.tid, &regs); err != nil {
		return err
	}
	regs.Rip = uint64(to)
	return unix.PtraceSetRegs(s.tid, &regs)
}

func (s *stepper) atCall(at uintptr) bool {
	var code [2]byte
	_, err := unix.PtracePeekText(s.tid, at, code[:])
	return err == nil && code == [2]byte{0x0f, 0x05}
}

// skipCall executes the call of the mark that ends a part.
func (s *stepper) skipCall() error {
	_, err := s.step(0)
	return err
}

// word returns a word of the thread's memory.
func (s *stepper) word(at uintptr) uint64 {
	var b [8]byte
	if _, err := unix.PtracePeekData(s.tid, at, b[:]); err != nil {
		return 0
	}
	return binary.LittleEndian.Uint64(b[:])
}

// A library is a part of the address space.
type library struct {
	from, to uint64
	name     string
}

// libraries returns the code of a process.
func libraries(pid int) (all []library, err error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	for line := range strings.Lines(string(b)) {
		var l library
		var rights, off, dev, inode string
		if n, _ := fmt.Sscanf(line, "%x-%x %s %s %s %s %s", &l.from, &l.to, &rights, &off, &dev, &inode, &l.name); n >= 6 &&
			strings.Contains(rights, "x") {
			all = append(all, l)
		}
	}
	return all, err
}

// ofC counts the instructions of libibverbs and the provider, and those of other libraries that they call. A signal is
// that of a store to a register, which is one instruction: what carries it out is not counted.
func (s *stepper) ofC(pid int, provider string) error {
	libs, err := libraries(pid)
	if err != nil {
		return err
	}
	inside, handler := false, false
	s.trapped = func() { handler = true }
	s.counts = func(regs *unix.PtraceRegs) bool {
		name := ""
		for _, l := range libs {
			if regs.Rip >= l.from && regs.Rip < l.to {
				name = l.name
			}
		}
		switch {
		case strings.Contains(name, "libibverbs.so"), strings.Contains(name, "/lib"+provider):
			inside, handler = true, false
		case strings.HasSuffix(name, "/program"):
			inside = false
		}
		return inside && !handler
	}
	return nil
}

// freeze stops the other threads of the process until this thread ends: the runtime's monitor would preempt a goroutine
// that takes so long.
func (s *stepper) freeze(pid int) error {
	tasks, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	for _, task := range tasks {
		tid, bad := strconv.Atoi(task.Name())
		if bad != nil || tid == s.tid {
			continue
		}
		if _, e := attach(tid); e != nil {
			err = errors.Join(err, e)
		}
	}
	return err
}

// ofGo counts the instructions of a program that is a copy of this process, but not those of this package and of the
// device in memory. Those begin with the function simulate of a provider.
func (s *stepper) ofGo() {
	s.counts = func(regs *unix.PtraceRegs) bool {
		f := runtime.FuncForPC(uintptr(regs.Rip))
		if f == nil {
			return false
		}
		name := f.Name()
		if strings.HasSuffix(name, ").simulate") {
			if s.until = s.word(uintptr(regs.Rsp)); s.until != 0 {
				return false
			}
		}
		if strings.Contains(name, "/cshim/compare.") || strings.HasPrefix(name, "golang.org/x/sys/unix.") ||
			strings.HasSuffix(name, "-fm") { // a method value, which is the program's
			return false
		}
		s.functions[len(s.functions)-1][name[strings.LastIndexByte(name, '/')+1:]]++
		return true
	}
}
