package s3rdma_test

import (
	"fmt"
	"testing"

	"github.com/minio/minio-go/v7"
)

// TestPutGet stores and reads objects of several sizes with minio-go.
func TestPutGet(t *testing.T) {
	forms(t, func(r *rig) {
		for _, n := range []int{0, 1, 4 << 10, 5 << 20, 64 << 20} {
			data := randomBytes(n)
			name := fmt.Sprint(n)
			_, err := r.put(name, data, minio.PutObjectOptions{})
			check(r, err)
			r.moved(int64(n))
			r.same(name, data)
			r.moved(int64(n))
		}
	})
}
