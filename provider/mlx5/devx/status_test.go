package devx

import (
	"errors"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/leak/leaktest"
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
		status Status
		text   string
	}{
		{nil, reply(0), nil, 0, ""},
		{unix.EREMOTEIO, reply(0x3), uverbs.ErrInvalid, BadParameter,
			"command 0x500: bad parameter (status 0x3, syndrome 0xdeadbeef)"},
		{unix.EREMOTEIO, reply(0x6), uverbs.ErrBusy, ResourceBusy, "resource busy"},
		{unix.EREMOTEIO, reply(0x8), unix.ENOMEM, ExceededLimit, "limits exceeded"},
		{unix.EREMOTEIO, reply(0x7f), unix.EIO, 0x7f, "unknown status (status 0x7f"},
		{unix.EREMOTEIO, reply(0), unix.EREMOTEIO, 0, ""},
		{unix.EINVAL, reply(0x3), unix.EINVAL, 0, ""},
	} {
		err := explain(c.err, in, c.out)
		var said *StatusError
		if found := errors.As(err, &said); found != (c.status != 0) || found && said.Status != c.status {
			t.Errorf("%v, % x: %v", c.err, c.out[:8], err)
		}
		if !errors.Is(err, c.want) || c.text != "" && !strings.Contains(err.Error(), c.text) {
			t.Errorf("%v, % x: %v, want %v, %q", c.err, c.out[:8], err, c.want, c.text)
		}
	}
}

// TestSizes checks the sizes of commands and replies.
func TestSizes(t *testing.T) {
	for _, c := range []struct {
		in, out int
		ok      bool
	}{
		{16, 16, true}, {15, 16, false}, {16, 15, false}, {0xffff, 0xffff, true}, {0x10000, 16, false}, {16, 0x10000, false},
	} {
		if err := checkSizes(make([]byte, c.in), make([]byte, c.out)); (err == nil) != c.ok ||
			!c.ok && !errors.Is(err, uverbs.ErrInvalid) {
			t.Errorf("%d and %d bytes: %v", c.in, c.out, err)
		}
	}
}

// TestNil checks functions without a Context, a QP or a queue of replies.
func TestNil(t *testing.T) {
	b := make([]byte, 16)
	_, errObj := Create(nil, b, b)
	_, errUmem := AllocUmem(nil, 1, 0)
	_, errUAR := AllocUAR(nil, NonCached)
	_, errReplies := CreateReplies(nil)
	_, errEvents := CreateEventChannel(nil)
	_, errEQN := QueryEQN(nil, 0)
	for i, err := range []error{Command(nil, b, b), errObj, errUmem, errUAR, errReplies, errEvents, errEQN,
		QueryQP(nil, b, b), ModifyQP(nil, b, b), new(Obj).QueryAsync(b, 16, 0, nil)} {
		if !errors.Is(err, uverbs.ErrInvalid) {
			t.Errorf("%d: %v", i, err)
		}
	}
}
