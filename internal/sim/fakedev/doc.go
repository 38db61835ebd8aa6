// Package fakedev is the part of a fake driver and its devices that does not depend on the driver: a computer with
// devices, the files that programs open, the commands of PDs, regions and address handles, and what a model needs to
// read and write memory, to change the states of QPs, and to carry packets with the InfiniBand transport of the
// software ConnectX. ioctltest checks the commands.
//
// A package like fakebnxt adds what its driver and its device do otherwise: the [Driver] of each [Kernel], with the
// commands that create queues, and the formats of requests, completions and doorbells.
//
// Everything runs in the loop of the [Fabric]. What a command or a doorbell starts has ended when it returns, unless
// the model waits for something.
package fakedev
