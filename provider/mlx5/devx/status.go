package devx

import (
	"errors"

	"github.com/goverbs/goverbs/internal/firmware"
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

// A StatusError is the reply of a device that refused a command.
type StatusError struct {
	Opcode   uint16 // of the command
	Status   Status
	Syndrome uint32 // the firmware's number of the cause
}

// Error implements error.
func (e *StatusError) Error() string {
	return (&firmware.StatusError{Opcode: e.Opcode, Status: uint8(e.Status), Syndrome: e.Syndrome}).Error()
}

// explain returns err with a StatusError in place of the error of package firmware, whose types programs cannot name.
func explain(err error) error {
	var e *uverbs.Error
	var refused *firmware.StatusError
	if errors.As(err, &e) && errors.As(e.Err, &refused) {
		e.Err = &StatusError{Opcode: refused.Opcode, Status: Status(refused.Status), Syndrome: refused.Syndrome}
	}
	return err
}
