package driver

// A Command issues one kernel command, which creates, queries, resizes or modifies
// an object. uhwIn and uhwOut are the driver's part of its input and reply. If the
// command fails, the provider may call it again, for example with another layout.
type Command func(uhwIn, uhwOut []byte) (Reply, error)

// A CQCommand is a [Command] that creates a CQ. It also accepts attributes of the
// driver.
type CQCommand func(uhwIn, uhwOut []byte, attrs ...Attr) (Reply, error)

// A ResizeCommand is a [Command] that resizes a CQ to a number of entries, which may be more than were asked for.
type ResizeCommand func(entries int, uhwIn, uhwOut []byte) (Reply, error)

// An Attr is a driver's attribute in a command.
type Attr struct {
	ID    uint16
	Value uint32
}

// A Reply is the part of a create command's reply that all drivers have in common.
type Reply struct {
	Handle  uint32 // of the object within its context
	Number  uint32 // QPN of a QP, SRQN of an XRC SRQ
	Entries int    // size of a CQ, as created by the kernel
	Cap     Cap    // sizes of a QP, as created by the kernel
	SRQ     SRQCap
}

// A Cap is the size of a QP's queues. It has the fields of uverbs.QPCap.
type Cap struct {
	MaxSendWR  int
	MaxRecvWR  int
	MaxSendSGE int
	MaxRecvSGE int
	MaxInline  int // bytes
}

// An SRQCap is the size of an SRQ.
type SRQCap struct {
	MaxWR  int
	MaxSGE int
}

// A PinnedError is the error of a create command for which the kernel had to pin
// memory for rings. So uverbs can report whether the limit on locked memory is the
// cause. Providers whose rings the kernel allocates do not need it.
type PinnedError struct {
	Err   error
	Bytes int
}

func (e *PinnedError) Error() string { return e.Err.Error() }

// Unwrap returns the error of the command.
func (e *PinnedError) Unwrap() error { return e.Err }

// Pinned returns a [PinnedError], or nil if err is nil.
func Pinned(err error, bytes int) error {
	if err == nil {
		return nil
	}
	return &PinnedError{err, bytes}
}
