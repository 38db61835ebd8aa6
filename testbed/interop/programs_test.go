//go:build vm

package interop

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"testing"

	"github.com/goverbs/goverbs/testbed/vm"
)

// module is the path of this module.
const module = "github.com/goverbs/goverbs/"

// ours maps C programs to the packages of our programs. The counterpart of rnc is nc.
var ours = map[string]string{
	asyncwatch:     "cmd/asyncwatch",
	"ibv_devinfo":  "cmd/devinfo",
	rcPingpong:     "cmd/rcpingpong",
	ucPingpong:     "cmd/ucpingpong",
	udPingpong:     "cmd/udpingpong",
	srqPingpong:    "cmd/srqpingpong",
	"mckey":        "cmd/mckey",
	"rcopy":        "cmd/rcopy",
	"rdma_client":  "cmd/rdma_client",
	"rdma_server":  "cmd/rdma_server",
	"rdma_xclient": "cmd/rdma_xclient",
	"rdma_xserver": "cmd/rdma_xserver",
	"riostream":    "cmd/riostream",
	"rping":        "cmd/rping",
	"rnc":          "cmd/rnc",
	rproxy:         "cmd/rproxy",
	"rstream":      "cmd/rstream",
	"ucmatose":     "cmd/ucmatose",
	"udaddy":       "cmd/udaddy",
	udpong:         "cmd/udpong",
	rsocketPeer:    "testbed/interop/peer",
}

// programDir is a directory for our programs.
var programDir string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "interop")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	programDir = dir
	status := m.Run()
	if err := os.RemoveAll(dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	os.Exit(status)
}

// programs returns the files of our programs by the names in ours. The first test that needs them builds them.
func programs(t *testing.T) map[string]string {
	t.Helper()
	files, missing := map[string]string{}, []string{}
	for name, pkg := range ours {
		files[name] = filepath.Join(programDir, path.Base(pkg))
		if _, err := os.Stat(files[name]); err != nil {
			missing = append(missing, module+pkg)
		}
	}
	if len(missing) > 0 {
		vm.BuildPrograms(t, programDir, "amd64", missing...)
	}
	return files
}
