// Package firmware executes commands of a ConnectX's firmware, and explains why it refused one.
package firmware

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/uverbs"
)

// The size of the shortest reply, and offsets in a reply.
const replySize, statusAt, syndromeAt = 16, 0, 4

// statuses has, by the PRM's numbers, the errnos that the kernel returns for its own commands, and texts.
var statuses = map[uint8]struct {
	errno unix.Errno
	text  string
}{
	0x1:  {unix.EIO, "internal error"},
	0x2:  {unix.EINVAL, "bad operation: the device does not have the command"},
	0x3:  {unix.EINVAL, "bad parameter"},
	0x4:  {unix.EIO, "bad system state"},
	0x5:  {unix.EINVAL, "bad resource: it does not exist, or belongs to another user"},
	0x6:  {unix.EBUSY, "resource busy: another object uses it"},
	0x8:  {unix.ENOMEM, "limits exceeded"},
	0x9:  {unix.EINVAL, "bad resource state"},
	0xa:  {unix.EINVAL, "bad index"},
	0xf:  {unix.EAGAIN, "no resources"},
	0x10: {unix.EINVAL, "bad state of the queue"},
	0x30: {unix.EINVAL, "bad packet"},
	0x40: {unix.EINVAL, "bad size"},
	0x50: {unix.EIO, "bad input length"},
	0x51: {unix.EIO, "bad output length"},
}

// A StatusError is the reply of a device that refused a command.
type StatusError struct {
	Opcode   uint16 // of the command
	Status   uint8
	Syndrome uint32 // the firmware's number of the cause
}

// Error implements error.
func (e *StatusError) Error() string {
	text := cmp.Or(statuses[e.Status].text, "unknown status")
	return fmt.Sprintf("the device refused command %#x: %s (status %#x, syndrome %#x)", e.Opcode, text, e.Status,
		e.Syndrome)
}

// Explain returns the error of a command of op. Since Linux 6.0 the kernel returns EREMOTEIO, and the reply, if the
// device refused the command; before, only an errno.
func Explain(op string, err error, in, out []byte) error {
	if !errors.Is(err, unix.EREMOTEIO) || len(in) < 2 || len(out) < replySize || out[statusAt] == 0 {
		return err
	}
	said := &StatusError{Opcode: binary.BigEndian.Uint16(in), Status: out[statusAt],
		Syndrome: binary.BigEndian.Uint32(out[syndromeAt:])}
	e := &uverbs.Error{Op: op, Errno: unix.EIO, Err: said}
	if s, ok := statuses[said.Status]; ok {
		e.Errno = s.errno
	}
	switch e.Errno {
	case unix.EINVAL:
		e.Kind = uverbs.ErrInvalid
	case unix.EBUSY:
		e.Kind = uverbs.ErrBusy
	}
	return e
}
