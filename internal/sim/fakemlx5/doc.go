// Package fakemlx5 is Linux's mlx5_ib and a ConnectX in this process: the fake kernel of
// ioctltest, which checks commands, and the device model of the software ConnectX, which executes
// them. What a program writes to queues is what a real adapter would read.
//
// An [Adapter] is attached to a network. Each time it is opened there is a [Kernel], which handles
// the commands of one file. Everything runs in the loop of the network: a command, a doorbell and
// a packet are steps of it.
package fakemlx5
