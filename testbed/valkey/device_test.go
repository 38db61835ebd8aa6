//go:build device

package valkey_test

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"syscall"

	"github.com/goverbs/goverbs/valkeyrdma"
)

// deviceIP is the address of the device that GOVERBS_DEVICE names. The server listens at port 6379 of it, and at port
// 6380 with TCP.
const deviceIP = "10.9.0.1"

// prepare makes a rig of the device and itself. GOVERBS_VALKEY is the command that runs the server, a line for each
// argument. It returns a function that waits until the server listens.
func (r *rig) prepare() func() {
	argv := strings.Split(os.Getenv("GOVERBS_VALKEY"), "\n")
	if argv[0] == "" {
		r.t.Fatal("GOVERBS_VALKEY is not set")
	}
	r.addr, r.onClient = deviceIP+":6379", func(f func()) { f() }
	r.process = exec.Command(argv[0], append(argv[1:], "--rdma-bind", deviceIP, "--rdma-port", "6379",
		"--bind", deviceIP, "--port", "6380")...)
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
