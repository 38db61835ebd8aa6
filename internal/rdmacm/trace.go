package rdmacm

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/goverbs/goverbs/internal/uapi"
	"golang.org/x/sys/unix"
)

// tracing is set when the process starts.
var tracing atomic.Bool

func init() { tracing.Store(os.Getenv("GOVERBS_TRACE") == "1") }

var (
	traceMu sync.Mutex
	traceTo io.Writer = os.Stderr
)

// commands has the name of each command and the offset of the id in its payload.
var commands = map[uint32]struct {
	name string
	id   int // -1: none
}{
	uapi.RDMA_USER_CM_CMD_CREATE_ID:          {"CREATE_ID", -1},
	uapi.RDMA_USER_CM_CMD_DESTROY_ID:         {"DESTROY_ID", 8},
	uapi.RDMA_USER_CM_CMD_RESOLVE_ROUTE:      {"RESOLVE_ROUTE", 0},
	uapi.RDMA_USER_CM_CMD_CONNECT:            {"CONNECT", 272},
	uapi.RDMA_USER_CM_CMD_LISTEN:             {"LISTEN", 0},
	uapi.RDMA_USER_CM_CMD_ACCEPT:             {"ACCEPT", 280},
	uapi.RDMA_USER_CM_CMD_REJECT:             {"REJECT", 0},
	uapi.RDMA_USER_CM_CMD_DISCONNECT:         {"DISCONNECT", 0},
	uapi.RDMA_USER_CM_CMD_INIT_QP_ATTR:       {"INIT_QP_ATTR", 8},
	uapi.RDMA_USER_CM_CMD_GET_EVENT:          {"GET_EVENT", -1},
	uapi.RDMA_USER_CM_CMD_SET_OPTION:         {"SET_OPTION", 8},
	uapi.RDMA_USER_CM_CMD_NOTIFY:             {"NOTIFY", 0},
	uapi.RDMA_USER_CM_CMD_LEAVE_MCAST:        {"LEAVE_MCAST", 8},
	uapi.RDMA_USER_CM_CMD_MIGRATE_ID:         {"MIGRATE_ID", 8},
	uapi.RDMA_USER_CM_CMD_QUERY:              {"QUERY", 8},
	uapi.RDMA_USER_CM_CMD_BIND:               {"BIND", 0},
	uapi.RDMA_USER_CM_CMD_RESOLVE_ADDR:       {"RESOLVE_ADDR", 0},
	uapi.RDMA_USER_CM_CMD_JOIN_MCAST:         {"JOIN_MCAST", 16},
	uapi.RDMA_USER_CM_CMD_RESOLVE_IB_SERVICE: {"RESOLVE_IB_SERVICE", 0},
	uapi.RDMA_USER_CM_CMD_WRITE_CM_EVENT:     {"WRITE_CM_EVENT", 0},
}

// trace prints one command as a line.
func trace(c *command, errno unix.Errno, took time.Duration) {
	result := "0"
	if errno != 0 {
		result = "-1 " + unix.ErrnoName(errno)
	} else if header(c).Out != 0 {
		result += " " + dump(Call{c}.reply())
	}
	traceMu.Lock()
	defer traceMu.Unlock()
	fmt.Fprintf(traceTo, "rdma_cm %s = %s <%v>\n", c.describe(), result, took.Round(time.Microsecond))
}

// describe formats command, id and payload.
func (c *command) describe() string {
	frame := Call{c}.Frame()
	if len(frame) < headerSize {
		return fmt.Sprintf("%d bytes", len(frame))
	}
	number, payload := header(c).Cmd, frame[headerSize:]
	known, ok := commands[number]
	switch {
	case !ok:
		return fmt.Sprintf("command %d(%s)", number, dump(payload))
	case known.id < 0:
		return known.name + "(" + dump(payload) + ")"
	}
	id := binary.NativeEndian.Uint32(payload[known.id:])
	return fmt.Sprintf("%s(id=%d, %s)", known.name, id, dump(payload))
}

// dump formats bytes without the zeros at their end.
func dump(b []byte) string {
	const most = 64
	n := len(b)
	for n > 0 && b[n-1] == 0 {
		n--
	}
	if n > most {
		return hex.EncodeToString(b[:most]) + fmt.Sprintf("…[%d]", len(b))
	}
	return hex.EncodeToString(b[:n]) + fmt.Sprintf("[%d]", len(b))
}
