package rsocket

import (
	"errors"
	"fmt"
	"os"
	"testing"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/uverbs"
)

// TestNoRDMA checks which errors mean that a program may try TCP.
func TestNoRDMA(t *testing.T) {
	for cause, want := range map[error]bool{
		uverbs.ErrNoDevice: true,
		uverbs.ErrNoNode:   true, // the kernel has no connection manager
		cm.ErrUnreachable:  true,
		cm.ErrRejected:     false,
		os.ErrPermission:   false, // TCP would hide a mistake of the installation
	} {
		err := dialError(fmt.Errorf("dial: %w", cause))
		if errors.Is(err, ErrNoRDMA) != want || !errors.Is(err, cause) {
			t.Errorf("the error for %v is %v", cause, err)
		}
	}
}
