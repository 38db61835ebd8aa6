// Objects keeps objects on a server, whose data travels by RDMA, or by HTTP if one of the machines has no RDMA
// device. It is an example of package s3rdma, without the signatures of S3.
//
//	objects serve DIR
//	objects put http://192.0.2.1:7480/bucket/name < file
//	objects get http://192.0.2.1:7480/bucket/name > file
//	objects -range bytes=0-1023 get http://192.0.2.1:7480/bucket/name
//	objects -t dc get http://192.0.2.1:7480/bucket/name > file
//
// A bucket is a directory in DIR.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"time"

	_ "github.com/goverbs/goverbs/provider/all"
	"github.com/goverbs/goverbs/s3rdma"
)

var (
	device  = flag.String("d", "", "RDMA device (default: the first with an active port)")
	listen  = flag.String("l", ":7480", "address to serve")
	service = flag.String("t", "rc", "transport service: rc, or dc of ConnectX")
	ranges  = flag.String("range", "", "HTTP range to get, such as bytes=0-1023")
	most    = flag.Int64("memory", 1<<30, "bytes of memory of a client, or of the server's sessions")
)

const usage = "usage: objects [flags] serve DIR | put URL | get URL"

func main() {
	log.SetFlags(0)
	log.SetPrefix("objects: ")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if flag.NArg() != 2 {
		log.Fatal(usage)
	}
	d, err := s3rdma.Open(*device)
	if err != nil {
		log.Printf("data travels by HTTP: %v", err) // d is nil
	}
	switch arg := flag.Arg(1); flag.Arg(0) {
	case "serve":
		err = serve(ctx, d, arg)
	case "put":
		err = request(ctx, d, http.MethodPut, arg)
	case "get":
		err = request(ctx, d, http.MethodGet, arg)
	default:
		log.Fatal(usage)
	}
	if err = errors.Join(err, d.Close()); err != nil {
		log.Fatal(err)
	}
}

// serve serves the files of a directory until ctx ends.
func serve(ctx context.Context, d *s3rdma.Device, dir string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	h := &s3rdma.Handler{Next: store{root}, Device: d, MaxMemory: *most, Observe: report,
		RC: func(_, _ *http.Request) error { return nil }} // as without RDMA, every caller may read and write
	s := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second}
	l, err := net.Listen("tcp", *listen)
	if err != nil {
		return err
	}
	fmt.Println("serving", l.Addr())
	stopped := make(chan error, 1)
	stop := context.AfterFunc(ctx, func() { stopped <- s.Shutdown(context.Background()) })
	if err := s.Serve(l); stop() { // not because ctx ended
		return errors.Join(err, h.Close())
	}
	return errors.Join(<-stopped, h.Close())
}

// request sends an object from the standard input, or prints one.
func request(ctx context.Context, d *s3rdma.Device, method, url string) (err error) {
	t := &s3rdma.Transport{Device: d, Service: s3rdma.Service(*service), MaxMemory: *most, Observe: report}
	defer func() { err = errors.Join(err, t.Close()) }()
	req, err := http.NewRequestWithContext(ctx, method, url, nil)
	if err != nil {
		return err
	}
	if method == http.MethodPut {
		req.Body = os.Stdin
		if info, err := os.Stdin.Stat(); err == nil && info.Mode().IsRegular() {
			req.ContentLength = info.Size() // otherwise it is unknown, and HTTP carries it
		}
	}
	if *ranges != "" {
		req.Header.Set("Range", *ranges)
	}
	resp, err := (&http.Client{Transport: t}).Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode >= http.StatusMultipleChoices {
		return errors.New(resp.Status)
	}
	_, err = io.Copy(os.Stdout, resp.Body)
	return err
}

// report prints how data has travelled.
func report(t s3rdma.Transfer) {
	if t.RDMA {
		log.Printf("%s %s: %d bytes by RDMA", t.Method, t.Path, t.Bytes)
	} else {
		log.Printf("%s %s: by HTTP: %v", t.Method, t.Path, t.Err)
	}
}
