// Package verbstest provides machines with RDMA devices in memory, for tests of programs that use
// packages uverbs and cm. They need no device, no privilege and no kernel module.
//
//	func TestEcho(t *testing.T) {
//		m := verbstest.New(t)
//		l, err := cm.Listen(m.AddrPort(7471), cm.ListenOptions{})
//		…
//	}
//
// The program under test runs unchanged, down to the encoding of the kernel's commands and the
// rings of the provider's queues. The kernel and the adapter, a ConnectX, are in memory.
//
// # Which machine a goroutine runs on
//
// A goroutine inherits its machine from the goroutine that started it. [New] puts the calling
// goroutine, which is that of the test, on the new machine. [Machine.Run] runs a function on
// another machine. The functions that look for devices and addresses (uverbs.Devices, uverbs.Open,
// cm.Dial, cm.Listen and so on) use those of the goroutine's machine, so that tests that run in
// parallel do not meet. Objects belong to the machine on which they were created, whichever
// goroutine uses them.
//
// The machine of a goroutine is one of its profiler labels. A program that sets other labels
// ([runtime/pprof.Do]) leaves the machine, unless there is only one in the process.
package verbstest
