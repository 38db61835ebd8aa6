package s3rdma_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
	"github.com/rclone/gofakes3"
	"github.com/rclone/gofakes3/s3mem"
	"github.com/rclone/gofakes3/signature"

	"github.com/goverbs/goverbs/internal/sim/errtest"
	"github.com/goverbs/goverbs/internal/sim/leaktest"
	_ "github.com/goverbs/goverbs/provider/all"
	"github.com/goverbs/goverbs/s3rdma"
	"github.com/goverbs/goverbs/verbstest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

var check = errtest.Check

func must[T any](v T, err error) func(testing.TB) T { return errtest.Value(v, err) }

const (
	bucket    = "bucket"
	accessKey = "the-access-key"
	secretKey = "the-secret-key"
)

// A rig is an S3 server, which checks signatures and checksums, and a client on two machines, or on the device of this
// machine. HTTP travels over the loopback interface.
type rig struct {
	testing.TB
	service        s3rdma.Service
	tls            bool
	net            *verbstest.Network // nil: a real device
	server, client *verbstest.Machine
	onServer       func(func()) // runs a function on the machine
	onClient       func(func())
	plain          http.Handler // a store that does not check signatures
	handler        *s3rdma.Handler
	front          atomic.Pointer[http.HandlerFunc] // what the server serves: handler
	url            string
	http           *httptest.Server
	base           *http.Transport
	transport      *s3rdma.Transport
	minio          *minio.Client
	ctx            context.Context

	served, got events
	serving     sync.WaitGroup // requests
}

// events are what an Observe function was called with.
type events struct {
	mu  sync.Mutex
	all []s3rdma.Transfer
}

func (e *events) add(t s3rdma.Transfer) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.all = append(e.all, t)
}

// take returns the events since the last call.
func (e *events) take() []s3rdma.Transfer {
	e.mu.Lock()
	defer e.mu.Unlock()
	all := e.all
	e.all = nil
	return all
}

// byRDMA returns how many bytes have travelled by RDMA, and the reasons of what has not.
func (e *events) byRDMA() (n int64, reasons []error) {
	for _, t := range e.take() {
		n += t.Bytes
		if !t.RDMA {
			reasons = append(reasons, t.Err)
		}
	}
	return n, reasons
}

// forms runs a test with each form of the wire.
func forms(t *testing.T, test func(r *rig), changes ...func(*rig)) {
	for _, service := range []s3rdma.Service{s3rdma.DC, s3rdma.RC} {
		t.Run(string(service), func(t *testing.T) { test(newRig(t, service, changes...)) })
	}
}

// newRig returns a rig, whose Handler and Transport the changes have changed before they are used.
func newRig(t testing.TB, service s3rdma.Service, changes ...func(*rig)) *rig {
	t.Helper()
	return newRigOn(t, verbstest.NewNetwork(t), service, changes...)
}

// newRigOn is newRig with machines of a network. If n is nil, it uses the device of this machine.
func newRigOn(t testing.TB, n *verbstest.Network, service s3rdma.Service, changes ...func(*rig)) *rig {
	t.Helper()
	here := func(f func()) { f() }
	r := &rig{TB: t, service: service, net: n, base: &http.Transport{}, onServer: here, onClient: here}
	if n != nil {
		r.server, r.client = n.Machine(), n.Machine()
		r.onServer, r.onClient = r.server.Run, r.client.Run
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	r.ctx = ctx
	r.onServer(r.serve)
	r.onClient(r.connect)
	for _, change := range changes {
		change(r)
	}
	if r.tls {
		r.http.StartTLS()
		r.base.TLSClientConfig = r.http.Client().Transport.(*http.Transport).TLSClientConfig.Clone()
	} else {
		r.http.Start()
	}
	r.url = r.http.URL
	r.minio = r.newMinio(false)
	check(r, r.minio.MakeBucket(r.ctx, bucket, minio.MakeBucketOptions{}))
	t.Cleanup(func() {
		cancel()
		r.base.CloseIdleConnections()
		r.http.Close()
		r.transport.Close() // fails if the test has removed the device
		r.handler.Close()
		r.handler.Device.Close()
		r.transport.Device.Close()
	})
	return r
}

// serve prepares a server whose store checks signatures, behind the Handler. With sessions it is the other way round.
func (r *rig) serve() {
	backend := s3mem.New()
	r.plain = gofakes3.New(backend).Server()
	r.handler = &s3rdma.Handler{Device: must(s3rdma.Open(""))(r), BufferSize: 256 << 10, Observe: r.served.add,
		Next: gofakes3.New(backend, gofakes3.WithV4Auth(map[string]string{accessKey: secretKey})).Server()}
	r.serveBy(r.handler.ServeHTTP)
	if r.service == s3rdma.RC {
		r.handler.Next, r.handler.RC = r.plain, func(_, _ *http.Request) error { return nil }
		r.serveBy(signed(r.handler))
	}
	r.http = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		r.serving.Add(1)
		defer r.serving.Done()
		(*r.front.Load())(w, q)
	}))
}

// signed checks the signatures of requests.
func signed(next http.Handler) http.HandlerFunc {
	return func(w http.ResponseWriter, q *http.Request) {
		if code := signature.V4SignVerifyWithSecret(q, secretKey); code != signature.ErrNone {
			http.Error(w, fmt.Sprint("signature: ", code), http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, q)
	}
}

func (r *rig) serveBy(f http.HandlerFunc) { r.front.Store(&f) }

func (r *rig) connect() {
	r.transport = &s3rdma.Transport{Base: r.base, Device: must(s3rdma.Open(""))(r), Observe: r.got.add,
		Service: r.service,
		Secret: func(_ context.Context, key string) (string, error) {
			if key != accessKey {
				return "", fmt.Errorf("no such access key: %s", key)
			}
			return secretKey, nil
		}}
}

func (r *rig) newMinio(trailers bool) *minio.Client {
	_, host, _ := strings.Cut(r.url, "://")
	return must(minio.New(host, &minio.Options{Transport: r.transport, Secure: r.tls, Region: "us-east-1",
		Creds: credentials.NewStaticV4(accessKey, secretKey, ""), TrailingHeaders: trailers}))(r)
}

// put stores an object with minio-go.
func (r *rig) put(name string, data []byte, o minio.PutObjectOptions) (minio.UploadInfo, error) {
	var info minio.UploadInfo
	var err error
	r.onClient(func() {
		info, err = r.minio.PutObject(r.ctx, bucket, name, bytes.NewReader(data), int64(len(data)), o)
	})
	return info, err
}

// get reads an object with minio-go.
func (r *rig) get(ctx context.Context, name string, o minio.GetObjectOptions) (data []byte, err error) {
	r.onClient(func() {
		var object *minio.Object
		if object, err = r.minio.GetObject(ctx, bucket, name, o); err != nil {
			return
		}
		defer object.Close()
		data, err = io.ReadAll(object)
	})
	return data, err
}

// same checks that an object has the data.
func (r *rig) same(name string, data []byte) {
	r.Helper()
	got, err := r.get(r.ctx, name, minio.GetObjectOptions{})
	if err != nil || !bytes.Equal(got, data) {
		r.Fatalf("get %s: %d bytes, which differ from the object's %d (%v)", name, len(got), len(data), err)
	}
}

// moved checks how much has travelled by RDMA since the last call, on both sides.
func (r *rig) moved(want int64) {
	r.Helper()
	client, why := r.got.byRDMA()
	server, whys := r.served.byRDMA()
	if client != want || server != want || want > 0 && (why != nil || whys != nil) {
		r.Fatalf("the client has moved %d bytes by RDMA (%v), the server %d (%v), want %d", client, why, server, whys, want)
	}
}

// released checks that no request holds memory, a transfer or a session.
func (r *rig) released() {
	r.Helper()
	if used, _ := r.transport.Memory(); used != 0 {
		r.Errorf("the client uses %d bytes", used)
	}
	r.serving.Wait()
	if transfers, sessions := r.handler.InUse(); transfers+sessions != 0 {
		r.Errorf("%d transfers and %d sessions are in progress", transfers, sessions)
	}
}

func randomBytes(n int) []byte {
	b := make([]byte, n)
	rand.NewChaCha8([32]byte{1}).Read(b)
	return b
}
