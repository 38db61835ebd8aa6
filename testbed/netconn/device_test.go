//go:build device

package netconn

import "testing"

// TestDeviceConn is TestConn on a device of the kernel.
func TestDeviceConn(t *testing.T) { TestConn(t) }
