// Package wire is what host and guest say to each other over the guest's
// virtio-serial port: frames of a kind, a stream number and a payload.
//
// The host opens a stream per command with Start; all other frames of the
// command carry its number. Stream 0 is for the guest itself.
package wire

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"
)

// Version is that of the protocol. The agent is built with the host's program,
// so a difference means a stale binary.
const Version = 2

// A Kind says what a frame is.
type Kind uint8

// Frames from the host.
const (
	Start      Kind = iota + 1 // run a command: StartRequest
	Stdin                      // bytes for the command's input
	CloseStdin                 // end of the command's input
	Signal                     // send a signal: SignalRequest
	Resize                     // size of a terminal: WindowSize
	Ping                       // the guest answers with Pong, same payload
	PowerOff                   // end the guest
)

// Frames from the guest.
const (
	Hello   Kind = iota + 64 // the agent is ready: HelloReport
	Started                  // the command runs: StartedReport
	Stdout                   // bytes
	Stderr                   // bytes
	Exit                     // the command has ended: ExitReport
	Pong                     // answer to Ping
	Failure                  // the agent cannot go on: text
)

// MaxPayload bounds a frame's payload.
const MaxPayload = 1 << 20

// ErrFrame says that the other side does not speak the protocol.
var ErrFrame = errors.New("wire: not a frame")

const headerSize = 12

var magic = [3]byte{'g', 'v', Version}

// A Frame is one message.
type Frame struct {
	Kind    Kind
	Stream  uint32
	Payload []byte
}

// Append adds the frame's bytes to b.
func (f Frame) Append(b []byte) []byte {
	b = append(b, magic[:]...)
	b = append(b, byte(f.Kind))
	b = binary.LittleEndian.AppendUint32(b, f.Stream)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(f.Payload)))
	return append(b, f.Payload...)
}

// Read reads one frame.
func Read(r io.Reader) (Frame, error) {
	var head [headerSize]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return Frame{}, err
	}
	n := binary.LittleEndian.Uint32(head[8:])
	if [3]byte(head[:3]) != magic || n > MaxPayload {
		return Frame{}, fmt.Errorf("%w: % x", ErrFrame, head)
	}
	f := Frame{Kind: Kind(head[3]), Stream: binary.LittleEndian.Uint32(head[4:]), Payload: make([]byte, n)}
	if _, err := io.ReadFull(r, f.Payload); err != nil {
		return Frame{}, fmt.Errorf("%w: cut short: %w", ErrFrame, err)
	}
	return f, nil
}

// Message makes a frame whose payload is the JSON form of v.
func Message(kind Kind, stream uint32, v any) (Frame, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return Frame{}, fmt.Errorf("wire: %w", err)
	}
	if len(b) > MaxPayload {
		return Frame{}, fmt.Errorf("wire: a message of %d bytes is too long", len(b))
	}
	return Frame{Kind: kind, Stream: stream, Payload: b}, nil
}

// Decode reads the JSON payload of a frame.
func (f Frame) Decode(v any) error {
	if err := json.Unmarshal(f.Payload, v); err != nil {
		return fmt.Errorf("wire: frame of kind %d: %w", f.Kind, err)
	}
	return nil
}

// StartRequest asks for a command.
type StartRequest struct {
	Path    string   // a name without slash is looked up in PATH
	Args    []string // Args[0] is the name
	Env     []string
	Dir     string
	Outside bool // run in the initramfs rather than in the Debian root
	Stdin   bool // whether Stdin frames will come; else /dev/null
	TTY     *WindowSize
	UID     uint32
	GID     uint32
	Rlimits []Rlimit
}

// Rlimit is a resource limit (setrlimit(2)) of a command.
type Rlimit struct {
	Resource int
	Soft     uint64
	Hard     uint64
}

// WindowSize is the size of a terminal in characters.
type WindowSize struct{ Rows, Cols uint16 }

// SignalRequest asks for a signal to a command, or to its process group.
type SignalRequest struct {
	Signal int
	Group  bool
}

// HelloReport introduces the guest.
type HelloReport struct {
	Version int
	Release string
	Uptime  time.Duration // by the guest's clock
}

// StartedReport says that a command runs, or why it does not.
type StartedReport struct {
	PID   int
	Error string
	Errno int
}

// ExitReport says how a command ended.
type ExitReport struct {
	Status   uint32 // as wait4(2) gives it
	UserUsec int64
	SysUsec  int64
	Held     bool // output was cut off: other processes still hold the pipes
}

// PortName is the name of the guest's virtio-serial port.
const PortName = "goverbs"

// ConfigFile is where the initramfs holds a GuestConfig.
const ConfigFile = "/goverbs.json"

// Directories that the host shares with a guest: tag and mount point.
const (
	RootTag, RootDir     = "root", "/debian"               // the Debian root
	FilesTag, FilesDir   = "files", "/goverbs"             // what Install has put there; read-only in the guest
	ShareTag, ShareDir   = "share", "/share"               // a directory of the user's choice
	DefaultRXE, DummyDev = "rxe0", "d0"                    // the soft-RoCE device and the network device under it
	DummyAddr            = "10.9.0.1/24"                   // of the network device
	DefaultPath          = "/usr/sbin:/usr/bin:/sbin:/bin" // PATH of commands
)

// GuestConfig tells the agent what to set up.
type GuestConfig struct {
	Root  bool // mount the Debian root and run commands in it
	Share bool // mount the shared directory
	RXE   bool // make rxe0 on d0
}
