package s3rdma_test

import (
	"fmt"
	"testing"

	"github.com/minio/minio-go/v7"
)

// TestPutGet stores and reads objects of several sizes with minio-go.
func TestPutGet(t *testing.T) {
	r := newRig(t)
	for _, n := range []int{0, 1, 4 << 10, 5 << 20, 64 << 20} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			r.TB = t
			data := randomBytes(n)
			_, err := r.put("a", data, minio.PutObjectOptions{})
			check(t, err)
			r.moved(int64(n))
			r.same("a", data)
			r.moved(int64(n))
		})
	}
}
