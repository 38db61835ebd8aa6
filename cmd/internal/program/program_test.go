package program

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"
)

func TestInterruptible(t *testing.T) {
	for _, s := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
		ctx, stop := interruptible(t.Context())
		if err := syscall.Kill(syscall.Getpid(), s); err != nil {
			t.Fatal(err)
		}
		<-ctx.Done()
		if err := context.Cause(ctx); !errors.Is(err, ErrInterrupted) {
			t.Errorf("%v: cause %v", s, err)
		}
		stop()
	}
	ctx, stop := interruptible(t.Context())
	stop()
	if err := context.Cause(ctx); errors.Is(err, ErrInterrupted) {
		t.Errorf("without a signal: cause %v", err)
	}
}

func TestReport(t *testing.T) {
	var b strings.Builder
	if status := report(&b, "rping", nil); status != 0 || b.Len() != 0 {
		t.Errorf("status %d, %q", status, b.String())
	}
	if status := report(&b, "rping", fmt.Errorf("ping 3: %w", ErrInterrupted)); status != 1 ||
		b.String() != "rping: ping 3: interrupted\n" {
		t.Errorf("status %d, %q", status, b.String())
	}
}

// fullDisk is a Writer that has room for a number of bytes.
type fullDisk int

func (f *fullDisk) Write(b []byte) (int, error) {
	n := min(int(*f), len(b))
	*f -= fullDisk(n)
	if n < len(b) {
		return n, syscall.ENOSPC
	}
	return n, nil
}

func TestOutput(t *testing.T) {
	room := fullDisk(5)
	out := &output{w: &room}
	fmt.Fprint(out, "1234")
	if err := out.join(nil); err != nil {
		t.Error(err)
	}
	fmt.Fprint(out, "567")
	_, err := out.Write([]byte("8"))
	if !errors.Is(err, syscall.ENOSPC) || room != 0 {
		t.Errorf("%v, room for %d bytes", err, room)
	}
	const text = "print the output: no space left on device"
	if err := out.join(nil); !errors.Is(err, syscall.ENOSPC) || err.Error() != text {
		t.Errorf("an error that the program has not returned: %v", err)
	}
	if err := out.join(fmt.Errorf("ping: %w", err)); err.Error() != "ping: "+text {
		t.Errorf("an error that the program has returned: %v", err)
	}
}
