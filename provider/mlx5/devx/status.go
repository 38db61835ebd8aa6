package devx

import (
	"encoding/binary"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/uverbs"
)

// A Status is the result of a command that the device refused.
type Status uint8

// The statuses, with the names of the PRM.
const (
	InternalError    Status = 0x1
	BadOperation     Status = 0x2
	BadParameter     Status = 0x3
	BadSystemState   Status = 0x4
	BadResource      Status = 0x5
	ResourceBusy     Status = 0x6
	ExceededLimit    Status = 0x8
	BadResourceState Status = 0x9
	BadIndex         Status = 0xa
	NoResources      Status = 0xf
	BadQueueState    Status = 0x10
	BadPacket        Status = 0x30
	BadSize          Status = 0x40
	BadInputLength   Status = 0x50
	BadOutputLength  Status = 0x51
)

// Offsets in a reply.
const statusAt, syndromeAt = 0, 4

// statuses has the errnos that the kernel returns for its own commands, and texts.
var statuses = map[Status]struct {
	errno unix.Errno
	text  string
}{
	InternalError:    {unix.EIO, "internal error"},
	BadOperation:     {unix.EINVAL, "bad operation: the device does not have the command"},
	BadParameter:     {unix.EINVAL, "bad parameter"},
	BadSystemState:   {unix.EIO, "bad system state"},
	BadResource:      {unix.EINVAL, "bad resource: it does not exist, or belongs to another user"},
	ResourceBusy:     {unix.EBUSY, "resource busy: another object uses it"},
	ExceededLimit:    {unix.ENOMEM, "limits exceeded"},
	BadResourceState: {unix.EINVAL, "bad resource state"},
	BadIndex:         {unix.EINVAL, "bad index"},
	NoResources:      {unix.EAGAIN, "no resources"},
	BadQueueState:    {unix.EINVAL, "bad state of the queue"},
	BadPacket:        {unix.EINVAL, "bad packet"},
	BadSize:          {unix.EINVAL, "bad size"},
	BadInputLength:   {unix.EIO, "bad input length"},
	BadOutputLength:  {unix.EIO, "bad output length"},
}

// A StatusError is the reply of a device that refused a command.
type StatusError struct {
	Opcode   uint16 // of the command
	Status   Status
	Syndrome uint32 // the firmware's number of the cause
}

// Error implements error.
func (e *StatusError) Error() string {
	text := statuses[e.Status].text
	if text == "" {
		text = "unknown status"
	}
	return fmt.Sprintf("the device refused command %#x: %s (status %#x, syndrome %#x)", e.Opcode, text, uint8(e.Status),
		e.Syndrome)
}

// explain returns the error of a command. Since Linux 6.0 the kernel returns EREMOTEIO, and the reply, if the device
// refused it; before, only an errno.
func explain(err error, in, out []byte) error {
	if !errors.Is(err, unix.EREMOTEIO) || len(out) < headerSize || out[statusAt] == 0 {
		return err
	}
	said := &StatusError{Opcode: binary.BigEndian.Uint16(in), Status: Status(out[statusAt]),
		Syndrome: binary.BigEndian.Uint32(out[syndromeAt:])}
	e := &uverbs.Error{Op: opCommand, Errno: unix.EIO, Err: said}
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
