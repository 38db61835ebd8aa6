package devx

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/firmware"
	"github.com/goverbs/goverbs/internal/uapi"
	"github.com/goverbs/goverbs/uverbs"
)

// TestStatusError checks that the error of a command that the device refused has its status.
func TestStatusError(t *testing.T) {
	in := append([]byte{0x05, 0x00}, make([]byte, 14)...) // CREATE_QP
	out := append([]byte{byte(ResourceBusy), 0, 0, 0, 0xde, 0xad, 0xbe, 0xef}, make([]byte, 8)...)
	want := StatusError{Opcode: 0x500, Status: ResourceBusy, Syndrome: 0xdeadbeef}
	err := explain(firmware.Explain(opCommand, unix.EREMOTEIO, in, out))
	var said *StatusError
	if !errors.As(err, &said) || *said != want || !errors.Is(err, uverbs.ErrBusy) {
		t.Errorf("%v, want %v", err, &want)
	}
	if err := explain(nil); err != nil {
		t.Errorf("%v after success", err)
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
		if err := execute(make([]byte, c.in), make([]byte, c.out), func() error { return nil }); (err == nil) != c.ok ||
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

// TestUARTypes compares the types of pages with the kernel's.
func TestUARTypes(t *testing.T) {
	if BlueFlame != uapi.MLX5_IB_UAPI_UAR_ALLOC_TYPE_BF || NonCached != uapi.MLX5_IB_UAPI_UAR_ALLOC_TYPE_NC {
		t.Errorf("BlueFlame is %d and NonCached %d", BlueFlame, NonCached)
	}
}
