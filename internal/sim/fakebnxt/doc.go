// Package fakebnxt is Linux's bnxt_re driver and a Broadcom NetXtreme-E adapter in this process: the fake kernel of
// ioctltest, which checks commands, and a model of the device, which reads the rings of programs, checks what is in
// them, and executes requests with the InfiniBand transport of the software ConnectX.
//
// A [Fabric] is a computer with several devices on one network. It implements machine.Machine. Each time a device is
// opened there is a [Kernel], which handles the commands of one file.
//
// The model knows what the kernel's bnxt_re-abi.h, the kernel's driver and the definitions of the device in rdma-core
// say. It does not know what the firmware does where these are silent:
//
//   - A QP that enters ERR has one terminal completion in each of its CQs.
//   - An event is sent when an armed CQ has completions beyond the consumer index of the doorbell that armed it.
//   - Doorbells of a QP in ERR have no effect.
//   - Receives of an SRQ are not flushed.
//   - After RESET, a QP's first doorbell may have any epoch, and the table of PSNs by message goes on after the last
//     request that the program has posted, even if the device has not read it: libbnxt_re writes it so. A device that
//     counts messages from 0 again, or from the last one that it has read, would use other entries.
package fakebnxt
