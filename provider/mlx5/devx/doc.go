// Package devx sends commands of the firmware to a ConnectX or BlueField: mlx5dv_devx_* of libmlx5. A
// program creates objects that the verbs do not have, or configures them as the verbs do not allow. This one
// queries the capabilities of a device:
//
//	in, out := make([]byte, 16), make([]byte, 16+4096)
//	binary.BigEndian.PutUint16(in, 0x100) // QUERY_HCA_CAP
//	binary.BigEndian.PutUint16(in[6:], 1) // the general ones, current values
//	err := devx.Command(dev, in, out)     // dev is an open uverbs.Context
//
// A command and its reply are bytes in the format of the device's programmer's reference manual (PRM):
// big-endian, with the opcode in the first two bytes. The kernel sets the user (uid) of each command, and
// passes on only those that are safe. Rings and doorbell records are in a [Umem], whose ID a command
// contains; the program rings the doorbells of its objects in a [UAR] itself.
//
// Objects belong to a [uverbs.Context]. Its Close closes them, the newest first. They are often used by
// each other: the device refuses to destroy a Umem while a queue is in it, so close objects in the reverse
// order of their creation.
//
// The errors of all functions are of type *[uverbs.Error]. If the device refused a command, they contain a
// *[StatusError]. Any number of goroutines may call the functions.
package devx
