// Package connectx is a ConnectX adapter that is a Go program: a PCI function
// with its registers and its firmware, which the kernel's own mlx5_core and
// mlx5_ib drive.
//
// A Device is plugged into a machine by package vfiouser, or into a test by
// Plug. Its registers take the driver's commands, which are a table (see
// commands); the queues and the memory behind the commands are package engine's,
// and what goes out of a port is package fabric's.
//
//	device, err := connectx.New(connectx.Config{Loop: l, LinkLayer: connectx.InfiniBand, GUID: 0x2c9000001})
//	server := &vfiouser.Server{Device: device, Run: l.Run, Report: report}
//
// What the device offers are its capabilities. All of them are implemented; an
// option lowers them or leaves them away, so that old firmware and new can be
// played.
//
// A device is run by a loop.Loop: all its methods are called inside of it.
//
// Sources: the kernel's include/linux/mlx5 and drivers/net/ethernet/mellanox/mlx5,
// and what the drivers of 6.1, 6.12 and 7.2 were seen to do.
package connectx
