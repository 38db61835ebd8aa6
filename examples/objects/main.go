// Objects keeps objects on a server and moves them by RDMA, with HTTP over TCP for everything
// else. It uses TCP for the data too if one of the machines has no RDMA device.
//
//	objects serve DIR
//	objects put http://192.0.2.1:7480/name < file
//	objects get http://192.0.2.1:7480/name > file
//	objects -range bytes=0-1023 get http://192.0.2.1:7480/name
//	objects -t dc get http://192.0.2.1:7480/name > file
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

	"github.com/goverbs/goverbs/examples/objects/onesided"
	_ "github.com/goverbs/goverbs/provider/all"
)

var (
	device  = flag.String("d", "", "RDMA device (default: the first with an active port)")
	listen  = flag.String("l", ":7480", "address to serve")
	service = flag.String("t", "", "transport service: rc (default), or dc of ConnectX")
	ranges  = flag.String("range", "", "HTTP range to get, such as bytes=0-1023")
	size    = flag.Int("size", 16<<20, "bytes of a buffer: larger objects travel over TCP, or in ranges")
	count   = flag.Int("buffers", 8, "number of buffers")
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
	pool, err := onesided.OpenPool(*device, *count, *size)
	if err != nil {
		log.Printf("data travels over TCP: %v", err) // pool is nil
	}
	switch arg := flag.Arg(1); flag.Arg(0) {
	case "serve":
		err = serve(ctx, pool, arg)
	case "put":
		err = request(ctx, pool, http.MethodPut, arg)
	case "get":
		err = request(ctx, pool, http.MethodGet, arg)
	default:
		log.Fatal(usage)
	}
	if err = errors.Join(err, pool.Close()); err != nil {
		log.Fatal(err)
	}
}

// serve serves the files of a directory until ctx ends.
func serve(ctx context.Context, pool *onesided.Pool, dir string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	h := &onesided.Handler{Next: store{root}, Pool: pool}
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
func request(ctx context.Context, pool *onesided.Pool, method, url string) (err error) {
	t := &onesided.Transport{Pool: pool, Service: *service}
	defer func() { err = errors.Join(err, t.Close()) }()
	req, err := http.NewRequestWithContext(ctx, method, url, nil)
	if err != nil {
		return err
	}
	if method == http.MethodPut {
		req.Body = os.Stdin
		if info, err := os.Stdin.Stat(); err == nil && info.Mode().IsRegular() {
			req.ContentLength = info.Size() // otherwise it is unknown, and TCP carries it
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
	if n, ok := onesided.Moved(resp); ok {
		log.Printf("%s, %d bytes by RDMA", resp.Status, n)
	} else {
		log.Printf("%s, over TCP %s", resp.Status, onesided.Refused(resp))
	}
	if resp.StatusCode >= http.StatusMultipleChoices {
		return errors.New(resp.Status)
	}
	_, err = io.Copy(os.Stdout, resp.Body)
	return err
}
