// Package wire implements the protocol of host and guest on the guest's
// virtio-serial port: frames with a kind, a stream number and a payload.
//
// The host opens a stream per command with Start; all other frames of the
// command have its number. Stream 0 is for the guest itself.
package wire

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"
)

// Version is the version of the protocol. The agent is built together with the
// host's program, so a difference means a stale binary.
const Version = 2

// A Kind is the kind of a frame.
type Kind uint8

// Frames from the host.
const (
	Start      Kind = iota + 1 // run a command: StartRequest
	Stdin                      // bytes for the command's input
	CloseStdin                 // end of the command's input
	Signal                     // send a signal: SignalRequest
	Resize                     // size of a terminal: WindowSize
	Ping                       // request a Pong with the same payload
	PowerOff                   // power off the guest
)

// Frames from the guest.
const (
	Hello   Kind = iota + 64 // the agent is ready: HelloReport
	Started                  // the command runs: StartedReport
	Stdout                   // bytes
	Stderr                   // bytes
	Exit                     // the command has ended: ExitReport
	Pong                     // reply to Ping
	Failure                  // fatal error of the agent: text
)

// MaxPayload bounds a frame's payload.
const MaxPayload = 1 << 20

// ErrFrame means that the other side does not use the protocol.
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

// Message returns a frame with v encoded as JSON.
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

// Decode decodes the JSON payload of a frame.
func (f Frame) Decode(v any) error {
	if err := json.Unmarshal(f.Payload, v); err != nil {
		return fmt.Errorf("wire: frame of kind %d: %w", f.Kind, err)
	}
	return nil
}

// StartRequest requests the start of a command.
type StartRequest struct {
	Path    string   // a name without slash is looked up in PATH
	Args    []string // Args[0] is the name
	Env     []string
	Dir     string
	Outside bool // run in the initramfs rather than in the Debian root
	Stdin   bool // Stdin frames will follow; else /dev/null
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

// SignalRequest requests a signal to a command, or to its process group.
type SignalRequest struct {
	Signal int
	Group  bool
}

// HelloReport describes the guest.
type HelloReport struct {
	Version int
	Release string
	Uptime  time.Duration // by the guest's clock
}

// StartedReport reports that a command runs, or the error.
type StartedReport struct {
	PID   int
	Error string
	Errno int
}

// ExitReport reports how a command ended.
type ExitReport struct {
	Status   uint32 // as returned by wait4(2)
	UserUsec int64
	SysUsec  int64
	Held     bool // output was truncated: other processes still hold the pipes
}

// PortName is the name of the guest's virtio-serial port.
const PortName = "goverbs"

// ConfigFile is the path of the GuestConfig in the initramfs.
const ConfigFile = "/goverbs.json"

// Directories that the host shares with a guest: tag and mount point.
const (
	RootTag, RootDir     = "root", "/debian"   // the Debian root
	FilesTag, FilesDir   = "files", "/goverbs" // files of Install; read-only in the guest
	PreloadTag           = "preload"           // the part of the bed with that name
	PreloadDir           = "/run/preload"
	FabricTag, FabricDir = "fabric", "/run/fabric"         // the part of the bed with that name
	ShareTag, ShareDir   = "share", "/share"               // a directory of the user's choice
	DefaultRXE, DummyDev = "rxe0", "d0"                    // the soft-RoCE device and the network device under it
	DefaultSIW           = "siw0"                          // the soft-iWARP device on d0
	DummyAddr            = "10.9.0.1/24"                   // of the network device
	DefaultPath          = "/usr/sbin:/usr/bin:/sbin:/bin" // PATH of commands
)

// GuestConfig is the configuration for the agent.
type GuestConfig struct {
	Root    bool // mount the Debian root and run commands in it
	Preload bool // mount the programs for librspreload
	Fabric  bool // mount libfabric
	Share   bool // mount the shared directory
	RXE     bool // create rxe0 on d0
	SIW     bool // create siw0 on d0
}
