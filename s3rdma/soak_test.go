//go:build soak

package s3rdma_test

import (
	"cmp"
	"testing"

	"github.com/goverbs/goverbs/s3rdma"
	"github.com/goverbs/goverbs/verbstest"
)

// TestSoak stores and reads 1 GiB with minio-go, in each form of the wire and by HTTP.
func TestSoak(t *testing.T) {
	for _, service := range []s3rdma.Service{s3rdma.DC, s3rdma.RC, ""} {
		t.Run(cmp.Or(string(service), "http"), func(t *testing.T) { moveAll(t, verbstest.NewNetwork(t), service, 1<<30) })
	}
}
