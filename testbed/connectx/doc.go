// Package connectx implements a ConnectX adapter in software: a PCI function
// with registers and firmware for the kernel's mlx5_core and mlx5_ib drivers.
//
// A Device is plugged into a machine by package vfiouser, or into a test by
// Plug. Its command queue executes the driver's commands, which are in a table
// (command.go). internal/sim/connectx/engine implements the queues and the memory
// behind the commands, internal/sim/connectx/fabric the network.
//
//	device, err := connectx.New(connectx.Config{Loop: l, LinkLayer: connectx.InfiniBand, GUID: 0x2c9000001})
//	server := &vfiouser.Server{Device: device, Run: l.Run, Report: report}
//
// All offered capabilities are implemented. Options lower or remove them to
// imitate other firmware.
//
// A device runs in a loop.Loop. All methods must be called inside of it.
//
// Sources: the kernel's include/linux/mlx5 and
// drivers/net/ethernet/mellanox/mlx5, and the observed behavior of the drivers
// of 6.1, 6.12 and 7.2.
package connectx
