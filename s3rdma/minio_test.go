package s3rdma_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/minio/minio-go/v7"

	"github.com/goverbs/goverbs/s3rdma"
	"github.com/goverbs/goverbs/verbstest"
)

// TestPutGet stores and reads objects of several sizes with minio-go.
func TestPutGet(t *testing.T) {
	forms(t, func(r *rig) {
		for _, n := range []int{0, 1, 4 << 10, 5 << 20, 64 << 20} {
			data := randomBytes(n)
			name := fmt.Sprint(n)
			_, err := r.put(name, data, minio.PutObjectOptions{DisableMultipart: r.service == s3rdma.RC})
			check(r, err)
			r.moved(int64(n))
			r.same(name, data)
			r.moved(int64(n))
		}
		r.released()
	})
}

// TestInfiniBand stores and reads objects on a subnet of InfiniBand, where tokens have LIDs.
func TestInfiniBand(t *testing.T) {
	for _, service := range []s3rdma.Service{s3rdma.DC, s3rdma.RC} {
		t.Run(string(service), func(t *testing.T) {
			r := newRigOn(t, verbstest.NewNetwork(t, verbstest.InfiniBand()), service)
			data := randomBytes(3 << 20)
			must(r.put("a", data, minio.PutObjectOptions{}))(t)
			r.same("a", data)
			r.moved(int64(2 * len(data)))
		})
	}
}

// TestTLS has HTTPS, where minio-go sends other trailers and no signatures of data.
func TestTLS(t *testing.T) {
	forms(t, func(r *rig) {
		data := randomBytes(3 << 20)
		must(r.put("a", data, minio.PutObjectOptions{}))(r)
		r.same("a", data)
		r.moved(int64(2 * len(data)))
	}, func(r *rig) { r.tls = true })
}

// TestNames has keys that signatures and URLs escape.
func TestNames(t *testing.T) {
	forms(t, func(r *rig) {
		for _, name := range []string{"a b+c", "ä/ö?ü#", "a%2Fb", "~-_.!*'()", "a//b", "=&;:@,$"} {
			data := randomBytes(5000)
			_, err := r.put(name, data, minio.PutObjectOptions{})
			check(r, err)
			r.same(name, data)
			r.moved(10000)
		}
	})
}

// TestRanges reads parts of an object. With windows of 10,000 bytes, most take several requests.
func TestRanges(t *testing.T) {
	forms(t, func(r *rig) {
		data := randomBytes(100_000)
		_, err := r.put("a", data, minio.PutObjectOptions{})
		check(r, err)
		r.moved(100_000)
		for _, c := range []struct{ first, last, want int }{
			{0, 0, 1}, {99_999, 99_999, 1}, {0, 9999, 10_000}, {0, 10_000, 10_001}, {12_345, 98_765, 86_421},
			{50_000, 1 << 40, 50_000}, {99_990, 200_000, 10},
		} {
			o := minio.GetObjectOptions{}
			check(r, o.SetRange(int64(c.first), int64(c.last)))
			got, err := r.get(r.ctx, "a", o)
			if err != nil || !bytes.Equal(got, data[c.first:][:c.want]) {
				r.Fatalf("bytes %d to %d: %d bytes, %v", c.first, c.last, len(got), err)
			}
			r.moved(int64(c.want))
		}
		r.same("a", data)
		r.moved(100_000)
		r.byHTTP("a", data[len(data)-10:], 0, -10)
		o := minio.GetObjectOptions{}
		check(r, o.SetRange(100_000, 100_001))
		if _, err := r.get(r.ctx, "a", o); minio.ToErrorResponse(err).Code != "InvalidRange" {
			r.Errorf("beyond the end: %v", err)
		}
		r.released()
	}, func(r *rig) { r.transport.Window = 10_000 })
}

// byHTTP reads a range that travels by HTTP.
func (r *rig) byHTTP(name string, want []byte, first, last int64) {
	r.Helper()
	o := minio.GetObjectOptions{}
	check(r, o.SetRange(first, last))
	got, err := r.get(r.ctx, name, o)
	if err != nil || !bytes.Equal(got, want) {
		r.Fatalf("%d bytes, %v", len(got), err)
	}
	r.moved(0)
}

// TestSeek reads an object as minio-go's Object does with io.ReaderAt and io.Seeker.
func TestSeek(t *testing.T) {
	forms(t, func(r *rig) {
		data := randomBytes(3 << 20)
		_, err := r.put("a", data, minio.PutObjectOptions{})
		check(r, err)
		r.onClient(func() {
			o := must(r.minio.GetObject(r.ctx, bucket, "a", minio.GetObjectOptions{}))(r)
			defer o.Close()
			b := make([]byte, 1000)
			must(o.ReadAt(b, 12345))(r)
			if !bytes.Equal(b, data[12345:][:1000]) {
				r.Error("ReadAt returns other data")
			}
			must(o.Seek(-1000, io.SeekEnd))(r)
			if rest := must(io.ReadAll(o))(r); !bytes.Equal(rest, data[len(data)-1000:]) {
				r.Errorf("%d bytes at the end, or other data", len(rest))
			}
		})
	})
}

// TestMultipart stores an object in parts, which minio-go sends at the same time. The server of sessions drops the
// query of a target, as the published one does: a part must not replace the object.
func TestMultipart(t *testing.T) {
	forms(t, func(r *rig) {
		data := randomBytes(17 << 20)
		must(r.put("a", data[:1000], minio.PutObjectOptions{}))(r)
		r.got.take()
		r.served.take()
		_, err := r.put("a", data, minio.PutObjectOptions{PartSize: 5 << 20, NumThreads: 4})
		check(r, err)
		n, why := r.got.byRDMA()
		if rc := r.service == s3rdma.RC; rc && (n != 0 || len(why) != 4) || !rc && (n != int64(len(data)) || why != nil) {
			r.Errorf("%d bytes by RDMA, %v", n, why)
		}
		r.served.take()
		r.same("a", data)
		r.moved(int64(len(data)))
	}, func(r *rig) {
		if r.service == s3rdma.RC {
			r.handler.RC = func(_, object *http.Request) error { object.URL.RawQuery = ""; return nil }
		}
	})
}

// TestVersions has GETs of a version, for which sessions have no place.
func TestVersions(t *testing.T) {
	forms(t, func(r *rig) {
		must(r.put("a", randomBytes(1000), minio.PutObjectOptions{}))(r)
		r.got.take()
		resp, err := r.open("/" + bucket + "/a?versionId=none")
		check(r, err)
		resp.Body.Close()
		all := r.got.take()
		if resp.StatusCode == http.StatusOK || len(all) != 1 || all[0].RDMA {
			r.Errorf("%s, %v", resp.Status, all)
		}
	}, func(r *rig) {
		r.handler.Next = r.plain
		r.serveBy(r.handler.ServeHTTP)
		r.handler.RC = func(_, object *http.Request) error { object.URL.RawQuery = ""; return nil }
	})
}

// TestChecksums stores objects with each of minio-go's checksums, which the server computes from what it reads.
func TestChecksums(t *testing.T) {
	forms(t, func(r *rig) {
		data := randomBytes(1 << 20)
		r.minio = r.newMinio(true)
		for _, sum := range []minio.ChecksumType{minio.ChecksumCRC32C, minio.ChecksumCRC64NVME, minio.ChecksumSHA256} {
			for _, o := range []minio.PutObjectOptions{{Checksum: sum}, {AutoChecksum: sum}, {SendContentMd5: true},
				{DisableContentSha256: true}} {
				_, err := r.put("a", data, o)
				check(r, err)
				r.moved(int64(len(data)))
				r.same("a", data)
				r.moved(int64(len(data)))
			}
		}
	}, func(r *rig) {
		r.handler.Next = r.plain
		r.serveBy(signed(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
			q.Header.Del("X-Amz-Checksum-Algorithm") // which gofakes3 does not know
			r.handler.ServeHTTP(w, q)
		})))
	})
}

// TestMetadata stores what an object has besides data. Sessions have no place for it, and leave it to HTTP.
func TestMetadata(t *testing.T) {
	forms(t, func(r *rig) {
		data := randomBytes(1000)
		_, err := r.put("a", data, minio.PutObjectOptions{ContentType: "text/plain",
			UserMetadata: map[string]string{"k": "v"}})
		check(r, err)
		info := must(r.minio.StatObject(r.ctx, bucket, "a", minio.StatObjectOptions{}))(r)
		if info.ContentType != "text/plain" || info.UserMetadata["K"] != "v" || info.Size != 1000 {
			r.Errorf("%+v", info)
		}
		if n, _ := r.got.byRDMA(); (n == 0) != (r.service == s3rdma.RC) {
			r.Errorf("%d bytes by RDMA", n)
		}
		r.onClient(func() {
			o := must(r.minio.GetObject(r.ctx, bucket, "a", minio.GetObjectOptions{}))(r)
			defer o.Close()
			if info := must(o.Stat())(r); info.ContentType != "text/plain" || info.Size != 1000 || info.ETag == "" {
				r.Errorf("%+v", info)
			}
			if got := must(io.ReadAll(o))(r); !bytes.Equal(got, data) {
				r.Error("other data")
			}
		})
	})
}

// TestErrors has errors of the server, which its clients see as they are.
func TestErrors(t *testing.T) {
	forms(t, func(r *rig) {
		if _, err := r.get(r.ctx, "none", minio.GetObjectOptions{}); minio.ToErrorResponse(err).Code != "NoSuchKey" {
			r.Errorf("an object that does not exist: %v", err)
		}
		r.onClient(func() {
			_, err := r.minio.PutObject(r.ctx, "nowhere", "a", strings.NewReader("x"), 1, minio.PutObjectOptions{})
			if minio.ToErrorResponse(err).Code != "NoSuchBucket" {
				r.Errorf("a bucket that does not exist: %v", err)
			}
			for o := range r.minio.ListObjects(r.ctx, bucket, minio.ListObjectsOptions{}) {
				r.Errorf("%+v", o)
			}
		})
		if _, err := r.put("a", []byte("1"), minio.PutObjectOptions{}); err != nil {
			r.Error(err)
		}
		o := minio.PutObjectOptions{}
		o.SetMatchETagExcept("*")
		if _, err := r.put("a", []byte("2"), o); minio.ToErrorResponse(err).Code != "PreconditionFailed" {
			r.Errorf("an object that exists: %v", err)
		}
		r.same("a", []byte("1"))
		r.released()
	})
}

// TestConcurrent has many requests at a time, and fewer transfers at a time at the server.
func TestConcurrent(t *testing.T) {
	forms(t, func(r *rig) {
		data := randomBytes(3 << 20)
		var all sync.WaitGroup
		for i := range 24 {
			all.Go(func() {
				name, data := fmt.Sprint(i), data[i*1000:]
				if _, err := r.put(name, data, minio.PutObjectOptions{}); err != nil {
					r.Errorf("put: %v", err)
				}
				for range 2 {
					got, err := r.get(r.ctx, name, minio.GetObjectOptions{})
					if err != nil || !bytes.Equal(got, data) {
						r.Errorf("get: %d of %d bytes, %v", len(got), len(data), err)
					}
				}
			})
		}
		all.Wait()
		n, _ := r.got.byRDMA()
		_, reasons := r.served.byRDMA()
		for _, err := range reasons {
			if !errors.Is(err, s3rdma.ErrBusy) {
				r.Error(err)
			}
		}
		if n < 24<<20 { // sessions do not wait for a place
			r.Errorf("only %d bytes by RDMA", n)
		}
		r.released()
	}, func(r *rig) { r.handler.MaxTransfers = 4 })
}
