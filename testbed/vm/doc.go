// Package vm boots stock Debian kernels in QEMU, and runs Go test binaries and
// other programs in them.
//
// # Guests
//
// Boot starts a guest from the parts that package bed has set up. The guest's
// first process is a Go program (cmd/guest-agent), which loads kernel modules,
// mounts a small Debian if configured, and runs commands for the host over a
// virtio-serial port. Guest.Command is used like os/exec.Command; RunTests
// reports the tests of a binary of `go test -c` as subtests. Tests call Start,
// which also sets up the bed.
//
// # Failures
//
// If a guest panics, hangs or exits, everything that waits for it returns an
// error with the end of its serial console, in bounded time. QEMU never
// outlives the process that started it. Files left by a killed process are
// removed by the next one.
//
// # Time
//
// Guests are emulated. Times measured in them are meaningless, except in
// comparisons (Alternate), or if the guest's clock counts instructions
// (Config.ICount). GOVERBS_KVM=1 requests hardware virtualization, which is
// used if a guest boots with it.
//
// # Environment of commands
//
// PATH, HOME, LANG and TERM are set, and GOVERBS_KERNEL to Config.Kernel. With
// Config.RXE, GOVERBS_DEVICE is rxe0. Package internal/sim/features reads both.
package vm
