//go:build device

package valkey_test

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/goverbs/goverbs/valkeyrdma"
)

// deviceIP is the address of the device. The server listens at port 6379 of it.
const deviceIP = "10.9.0.1"

func here(f func()) { f() }

// prepare makes a rig of this machine. GOVERBS_VALKEY is the command that runs the server, a line for each argument. It
// returns a function that waits until the server listens.
func (r *rig) prepare() func() {
	argv := strings.Split(os.Getenv("GOVERBS_VALKEY"), "\n")
	if argv[0] == "" {
		r.t.Fatal("GOVERBS_VALKEY is not set")
	}
	r.addr, r.onClient, r.process = deviceIP+":6379", here, exec.Command(argv[0], argv[1:]...)
	return func() {
		for ctx := limit(r.t); ; {
			c, err := valkeyrdma.DialContext(ctx, r.addr)
			if err == nil {
				check(r.t, c.Close())
				return
			}
			if !errors.Is(err, syscall.ECONNREFUSED) || ctx.Err() != nil {
				r.t.Fatal(err)
			}
		}
	}
}

func TestDeviceConn(t *testing.T) { testConn(t, deviceIP+":6380", here, here) }
