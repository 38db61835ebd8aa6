// Package vm boots stock Debian kernels in QEMU, and runs Go test binaries and
// other programs in them.
//
// # Guests
//
// Boot starts a guest from the parts that package bed has set up. The guest's
// first process is a Go program (cmd/guest-agent), which loads kernel modules,
// mounts a small Debian where the guest is to have one, and then runs commands
// for the host over a virtio-serial port. Guest.Command is used like
// os/exec.Command; RunTests mirrors the tests of a binary of `go test -c` as
// subtests. Start, for tests, does all that a test needs to have a guest.
//
// # Trouble
//
// A guest that panics, hangs or ends is an error of everything that waits for
// it, with the end of its serial console, in bounded time. QEMU never outlives
// the process that has started it, however that process ends, and the next one
// removes what a killed one has left on disk.
//
// # Time
//
// Guests are emulated. Times that are measured in them mean nothing, except in
// comparison (Alternate), or when the guest's clock counts instructions
// (Config.ICount). GOVERBS_KVM=1 asks for hardware virtualization, which is
// tried by a boot.
//
// # Environment of commands
//
// PATH, HOME, LANG and TERM are set, and GOVERBS_KERNEL to Config.Kernel. With
// Config.RXE, GOVERBS_DEVICE is rxe0. Package expect reads both.
package vm
