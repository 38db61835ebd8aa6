// Cost measures what PUTs and GETs of minio-go cost by RDMA and by HTTP: the CPU time of this process, which is client
// and server, with their system calls, and the bytes that TCP has carried. If the clock counts instructions (QEMU's
// -icount), the CPU time is instructions.
//
// Both use one server, which keeps objects in memory, and one device, which communicates with itself. Neither client
// nor server computes checksums, except those of the Transport for "dc-sum". A figure is the median of several rounds,
// for one request, and rounds of all kinds alternate.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"net"
	"net/http"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	_ "github.com/goverbs/goverbs/provider/all"
	"github.com/goverbs/goverbs/s3rdma"
)

func main() {
	rounds := flag.Int("rounds", 3, "number of rounds")
	flag.Parse()
	debug.SetGCPercent(-1) // do not measure garbage collections
	runtime.GOMAXPROCS(1)
	if err := run(*rounds); err != nil {
		fmt.Fprintln(os.Stderr, "cost:", err)
		os.Exit(1)
	}
}

// patience limits nothing: a clock that counts instructions leaps while the machine idles.
const patience = 1000 * time.Hour

func run(rounds int) error {
	device, err := s3rdma.Open("")
	if err != nil {
		return err
	}
	handler := &s3rdma.Handler{Next: &store{}, Device: device, MaxWait: patience, Timeout: patience,
		RC: func(_, _ *http.Request) error { return nil }}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := &http.Server{Handler: handler}
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	err = compare(device, l.Addr().String(), rounds)
	err = errors.Join(err, server.Shutdown(context.Background()))
	if serr := <-served; serr != http.ErrServerClosed {
		err = errors.Join(err, serr)
	}
	return errors.Join(err, handler.Close(), device.Close())
}

// compare measures all clients of the server at addr.
func compare(device *s3rdma.Device, addr string, rounds int) error {
	transports := map[string]*s3rdma.Transport{
		"http":   {},
		"dc":     {Device: device, NoChecksum: true},
		"dc-sum": {Device: device},
		"rc":     {Device: device, NoChecksum: true, Service: s3rdma.RC},
	}
	var clients []*client
	for _, name := range slices.Sorted(maps.Keys(transports)) {
		one, err := newClient(name, addr, transports[name])
		if err != nil {
			return err
		}
		defer one.close()
		clients = append(clients, one)
	}
	return measure(clients, rounds)
}

// A client is minio-go with a Transport.
type client struct {
	name string
	s3   *minio.Client
	rdma *s3rdma.Transport
	base *http.Transport
	put  []byte
	got  []byte

	mu     sync.Mutex // of what Observe changes
	moved  int64      // by RDMA
	failed error      // why an object has travelled by HTTP
}

func newClient(name, addr string, t *s3rdma.Transport) (*client, error) {
	c := &client{name: name, rdma: t, base: &http.Transport{}, put: make([]byte, largest), got: make([]byte, largest)}
	for i := range c.put {
		c.put[i] = byte(i * 7 / 3)
	}
	t.Base = c.base
	t.Secret = func(context.Context, string) (string, error) { return "secret", nil }
	t.Observe = func(e s3rdma.Transfer) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.moved += e.Bytes
		if !e.RDMA {
			c.failed = errors.Join(c.failed, e.Err)
		}
	}
	var err error
	c.s3, err = minio.New(addr, &minio.Options{Transport: t, Region: "us-east-1",
		Creds: credentials.NewStaticV4("key", "secret", "")})
	return c, err
}

func (c *client) close() {
	c.base.CloseIdleConnections()
	c.rdma.Close()
}
