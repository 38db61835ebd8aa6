// Package fakeirdma is Linux's irdma driver and an Intel E810 in this process: what fakedev has, the driver's commands
// for queues, and a model of the device, which reads the rings of programs, checks what is in them, and executes
// requests with the InfiniBand transport of the software ConnectX.
//
// A [Fabric] is a computer with several devices on one network. It implements machine.Machine.
//
// The model knows what the kernel's irdma-abi.h, the kernel's driver and the definitions of the device in rdma-core
// say. It does not know what the firmware does where these are silent:
//
//   - A QP that enters ERR has one completion for each queue that is not empty, as after a command that flushes it
//     again. Its code is that of the error in the queue where it was.
//   - An event is sent when an armed CQ has completions beyond the index in its shadow area.
//   - Doorbells of a QP in ERR have no effect, and no request is read before its doorbell. Receives are read when a
//     program of this process says that it has posted them, and those of another one at any time.
//   - Registrations for rings have keys that no request can use.
//   - There are no memory windows, push pages, or multicast, which the driver has.
package fakeirdma
