package uverbs

import (
	"os"
	"os/exec"
	"runtime"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

const sandboxed = "GOVERBS_TEST_SANDBOXED"

// TestRegImplicitInSandbox checks that an open implicit MR counts as memory that only the device
// can write to if the process may not call process_vm_writev, as in a sandbox. Then the device
// writes short messages to memory by itself.
func TestRegImplicitInSandbox(t *testing.T) {
	inside := os.Getenv(sandboxed) != ""
	if inside {
		forbid(t, unix.SYS_PROCESS_VM_WRITEV, unix.EPERM)
	}
	r := newRig(t)
	r.pageable()
	m := reached(r.c)
	mr := good(good(r.c.AllocPD())(t).RegImplicit(OnDemand | LocalWrite))(t)
	if m.mrs.Foreign() != inside {
		t.Errorf("in a sandbox: %v; left to the device: %v", inside, m.mrs.Foreign())
	}
	check(t, mr.Close())
	if m.mrs.Foreign() {
		t.Error("there still is memory that is left to the device")
	}
	if inside {
		return
	}
	again := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run=^TestRegImplicitInSandbox$", "-test.timeout=1m")
	again.Env = append(os.Environ(), sandboxed+"=1")
	if out, err := again.CombinedOutput(); err != nil {
		t.Errorf("in a sandbox: %v\n%s", err, out)
	}
}

// forbid makes a system call fail, in all threads, until the process ends.
func forbid(t *testing.T, call uint32, errno unix.Errno) {
	t.Helper()
	const loadWord, jumpEqual, result = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K,
		unix.BPF_RET | unix.BPF_K
	filter := []unix.SockFilter{
		{Code: loadWord}, // the call's number
		{Code: jumpEqual, Jf: 1, K: call},
		{Code: result, K: unix.SECCOMP_RET_ERRNO | uint32(errno)},
		{Code: result, K: unix.SECCOMP_RET_ALLOW},
	}
	loadFilter(t, filter)
}

// forbidFamily makes socket fail with EAFNOSUPPORT for an address family, in all threads, until the
// process ends.
func forbidFamily(t *testing.T, family uint32) {
	t.Helper()
	const firstArgument = 16 // in struct seccomp_data
	const loadWord, jumpEqual, result = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K,
		unix.BPF_RET | unix.BPF_K
	loadFilter(t, []unix.SockFilter{
		{Code: loadWord}, // the call's number
		{Code: jumpEqual, Jf: 3, K: unix.SYS_SOCKET},
		{Code: loadWord, K: firstArgument},
		{Code: jumpEqual, Jf: 1, K: family},
		{Code: result, K: unix.SECCOMP_RET_ERRNO | uint32(unix.EAFNOSUPPORT)},
		{Code: result, K: unix.SECCOMP_RET_ALLOW},
	})
}

// loadFilter applies a seccomp filter to all threads.
func loadFilter(t *testing.T, filter []unix.SockFilter) {
	t.Helper()
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	check(t, unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
	_, _, failed := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC,
		uintptr(unsafe.Pointer(&program)))
	if failed != 0 {
		t.Fatalf("seccomp: %v", failed)
	}
}

// TestSharedPartOfAH checks that the provider's part of an AH is at the address of the AH, as
// internal/provider.AHOf requires.
func TestSharedPartOfAH(t *testing.T) {
	if off := unsafe.Offsetof(AH{}.shared); off != 0 {
		t.Errorf("AH.shared is at offset %d", off)
	}
}
