// Package usertest runs tests without root's rights.
package usertest

import (
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// Ordinary makes a child process run without root's rights.
func Ordinary() *syscall.SysProcAttr {
	const nobody = 65534
	return &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
}

// Run runs the test in a process without root's rights. It returns true in that process. In
// the parent it returns false after that process has ended.
func Run(t *testing.T) bool {
	t.Helper()
	const mark = "GOVERBS_TEST_AS_USER"
	if os.Getenv(mark) == "1" {
		return true
	}
	cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), mark+"=1")
	cmd.SysProcAttr = Ordinary()
	out, err := cmd.CombinedOutput()
	switch {
	case err == nil && strings.Contains(string(out), "--- SKIP"): // the child has checked that the skip is expected
		t.Skipf("as an ordinary user:\n%s", out)
	case err != nil || !strings.Contains(string(out), "--- PASS"):
		t.Fatalf("as an ordinary user: %v\n%s", err, out)
	}
	return false
}
