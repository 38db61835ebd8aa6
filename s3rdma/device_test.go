//go:build device

package s3rdma_test

import (
	"testing"

	"github.com/goverbs/goverbs/s3rdma"
)

// TestDeviceGigabyte stores and reads 1 GiB with minio-go on the device of this machine, 64 MiB with -short.
func TestDeviceGigabyte(t *testing.T) {
	size := 1 << 30
	if testing.Short() {
		size = 64 << 20
	}
	for _, service := range []s3rdma.Service{s3rdma.DC, s3rdma.RC} {
		t.Run(string(service), func(t *testing.T) { moveAll(t, nil, service, size) })
	}
}
