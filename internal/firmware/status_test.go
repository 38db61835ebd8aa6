package firmware

import (
	"errors"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/sim/leaktest"
	"github.com/goverbs/goverbs/uverbs"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// TestStatus checks the errors of commands that the device or the kernel refuses.
func TestStatus(t *testing.T) {
	in := append([]byte{0x05, 0x00}, make([]byte, 14)...) // CREATE_QP
	reply := func(status byte) []byte {
		return append([]byte{status, 0, 0, 0, 0xde, 0xad, 0xbe, 0xef}, make([]byte, 8)...)
	}
	for _, c := range []struct {
		err    error
		out    []byte
		want   error
		status uint8
		text   string
	}{
		{nil, reply(0), nil, 0, ""},
		{unix.EREMOTEIO, reply(0x3), uverbs.ErrInvalid, 0x3,
			"command 0x500: bad parameter (status 0x3, syndrome 0xdeadbeef)"},
		{unix.EREMOTEIO, reply(0x6), uverbs.ErrBusy, 0x6, "resource busy"},
		{unix.EREMOTEIO, reply(0x8), unix.ENOMEM, 0x8, "limits exceeded"},
		{unix.EREMOTEIO, reply(0x7f), unix.EIO, 0x7f, "unknown status (status 0x7f"},
		{unix.EREMOTEIO, reply(0), unix.EREMOTEIO, 0, ""},
		{unix.EINVAL, reply(0x3), unix.EINVAL, 0, ""},
	} {
		err := Explain("op", c.err, in, c.out)
		var said *StatusError
		if found := errors.As(err, &said); found != (c.status != 0) || found && said.Status != c.status {
			t.Errorf("%v, % x: %v", c.err, c.out[:8], err)
		}
		if !errors.Is(err, c.want) || c.text != "" && !strings.Contains(err.Error(), c.text) {
			t.Errorf("%v, % x: %v, want %v, %q", c.err, c.out[:8], err, c.want, c.text)
		}
	}
}
