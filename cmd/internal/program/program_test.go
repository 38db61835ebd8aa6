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
