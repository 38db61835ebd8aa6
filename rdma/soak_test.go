//go:build soak

package rdma

import "testing"

// TestSoakSharedClients is TestSharedClients with 10,000 clients.
func TestSoakSharedClients(t *testing.T) {
	callFromMany(t, 10000, 4096) // with fewer, most of the time goes into repeated messages
}
