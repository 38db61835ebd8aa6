//go:build device

package uverbs_test

import (
	"strconv"
	"syscall"
)

func itoa(n int) string { return strconv.Itoa(n) }

// ordinaryUser makes a child process run without root's rights.
func ordinaryUser() *syscall.SysProcAttr {
	const nobody = 65534
	return &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
}
