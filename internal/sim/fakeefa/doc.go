// Package fakeefa is Linux's efa driver and an Elastic Fabric Adapter in this process: the fake
// kernel of ioctltest, which checks commands, and a model of the device, which executes the
// descriptors that programs write to queues.
//
// A [Fabric] is a computer with several devices, which reach each other. It implements
// machine.Machine. Each time a device is opened there is a [Kernel], which handles the commands of
// one file. What a doorbell starts has ended when the doorbell returns, with two exceptions: a
// message that finds no receive waits for one, and a device that only records executes nothing.
//
// The model knows what the kernel's efa-abi.h and the definitions of the device in rdma-core say. It
// does not know what the firmware does where these are silent: an SRD QP stays in RTS after an
// error, messages arrive in order, a move to ERR flushes both queues, and the first 40 bytes of a
// receive of a UD QP are a GRH.
package fakeefa
