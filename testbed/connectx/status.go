package connectx

import "fmt"

// A status is the status of a command: the first byte of its output.
type status uint8

const (
	statusOK               status = 0x0
	statusInternal         status = 0x1
	statusBadOpcode        status = 0x2
	statusBadParam         status = 0x3
	statusBadSystemState   status = 0x4
	statusBadResource      status = 0x5
	statusBusy             status = 0x6
	statusLimit            status = 0x8
	statusBadResourceState status = 0x9
	statusBadInputLength   status = 0x50
	statusBadOutputLength  status = 0x51
)

// A reason is the cause of a refused command: the lower half of its syndrome.
// The upper half is the opcode, so that the kernel's log has both.
type reason uint16

const (
	reasonNone         reason = iota
	reasonUnknown             // no such object
	reasonTooMany             // no more objects of this kind
	reasonInUse               // other objects use it
	reasonState               // not possible in this state of the object
	reasonParam               // the engine refused a parameter
	reasonOpcode              // no such command
	reasonLength              // input or output is too short
	reasonNotEnabled          // before ENABLE_HCA
	reasonNotRunning          // before INIT_HCA
	reasonRunning             // INIT_HCA a second time
	reasonOpMod               // unknown op_mod
	reasonCapability          // a capability that is not offered
	reasonISSI                // an interface that is not supported
	reasonPage                // an address that is not page-aligned
	reasonPagesMissing        // requested pages were not given
	reasonPagesHeld           // pages were not taken back
	reasonSize                // a size that is too large or too small
	reasonUAR                 // a UAR page that was not allocated
	reasonVector              // an unknown interrupt vector
	reasonEvents              // events of another event queue
	reasonPort                // an unknown port or function
	reasonRegister            // an unknown register
	reasonIndex               // an index beyond a table's end
	reasonBuffer              // too few pages for a queue
	reasonUID                 // an unknown user context
	reasonLink                // a command of the other link layer
	reasonUser                // a command that users may not execute
	reasonOwner               // an object of another user
	reasonUMem                // an unknown umem, or another user's
)

// A refusal is the error of a refused command.
type refusal struct {
	status status
	reason reason
	detail string
}

// Error implements error.
func (r *refusal) Error() string {
	return fmt.Sprintf("status %#x, reason %d %s", uint8(r.status), r.reason, r.detail)
}

func refuse(s status, r reason) error { return &refusal{status: s, reason: r} }
