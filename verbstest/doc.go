// Package verbstest provides machines with RDMA devices in memory, for tests of programs that use
// packages rdma, rsocket, cm and uverbs. They need no device, no privilege and no kernel module.
//
//	func TestRequest(t *testing.T) {
//		net := verbstest.NewNetwork(t)
//		server, client := net.Machine(), net.Machine()
//		server.Run(func() {
//			l, err := listen(":7471") // before the client dials
//			if err != nil {
//				t.Fatal(err)
//			}
//			served := make(chan error, 1)
//			go func() { served <- serve(l) }() // until l is closed
//			t.Cleanup(func() {
//				if err := errors.Join(l.Close(), <-served); err != nil {
//					t.Error(err)
//				}
//			})
//		})
//		client.Run(func() {
//			reply, err := request(server.AddrPort(7471).String(), "hello")
//			if err != nil || reply != "hello" {
//				t.Errorf("reply %q, %v", reply, err)
//			}
//		})
//	}
//
// The server, too, must end with the test: a listener that is not closed is reported. TestRequest of
// this package has the functions listen, serve and request.
//
// A program imports its providers itself, as provider/all does. Package verbstest imports the one of
// its devices, so that a program without one passes its tests, but finds no device elsewhere.
//
// The program under test runs unchanged, down to the encoding of the kernel's commands and the rings
// of the provider's queues. The kernel and the adapter, a ConnectX on RoCE, or with [InfiniBand] on
// a subnet, are in memory. The adapter has 256 KiB of device memory (uverbs.Context.AllocDM), which
// all programs of the machine share, and dynamically connected transport (uverbs.DCI, uverbs.DCT).
// [Machine.AddDevice] adds further adapters. UDP sockets are not in memory, so that
// rsocket.PacketConn, which uses one, does not work. The test fails if the program breaks a [Rule],
// with the line that posted the request, and if RDMA objects or goroutines of the program remain
// when it ends.
//
// # Which machine a goroutine runs on
//
// A goroutine inherits its machine from the goroutine that started it. [New] puts the calling
// goroutine, the test's, on the new machine. [Machine.Run] runs a function on
// another machine. The functions that look for devices and addresses (uverbs.Devices, uverbs.Open,
// cm.Dial, cm.Listen and so on) use those of the goroutine's machine, so that tests that run in
// parallel do not meet. Objects belong to the machine on which they were created, whichever
// goroutine uses them.
//
// The machine of a goroutine is one of its profiler labels. A program that sets other labels
// ([runtime/pprof.Do]) leaves the machine, unless there is only one in the process.
//
// Go test passes no testing.T to examples: [Main] runs them on a machine.
//
// # Faults
//
// A test makes things fail: [Network.AddFault] packets, [Machine.FailCommand], [Machine.Refuse] and
// [Machine.SetCommandTime] commands of the kernel, [Machine.SetLimits] commands that need too much,
// [Machine.FailCompletion] a request, [Machine.SetMTU] the MTU of a port, [Machine.SetPort] the cable,
// and [Machine.RemoveDevice] the device. [Network.AddHandshakeFault] changes the messages that establish
// connections, [Network.Partition] separates machines, and [Machine.Kill] powers one off. Programs notice
// these as late as with real devices: after seconds, unless [Network.SetTimeouts] sets shorter timeouts.
//
// # Order of events
//
// With the option [Seed], packets, completions and events arrive in an order that a seed decides. With
// [Steps], they arrive one by one when the test calls [Network.Step].
//
// # Data races with the device
//
// Under "go test -race", what devices do to registered memory takes part in the race detector. A
// receive buffer that is read before its completion was polled and the buffer of a send that is
// changed too early are reported like a race of two goroutines. The goroutine that stands for the
// device was created by the post: its "created at" has the line of the post. [IgnoreRaces] excludes
// memory that is polled on purpose.
package verbstest
