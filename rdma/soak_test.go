//go:build soak

package rdma

import "testing"

// TestSoakSharedClients is TestSharedClients with 10,000 clients.
func TestSoakSharedClients(t *testing.T) {
	callFromMany(t, 10000, 4096) // with 256, it does not end in minutes on a busy machine
}
