// Http serves the files of a directory over RDMA, with package net/http:
//
//	http serve /srv
//
// It also fetches one, from the address of the server's RDMA device:
//
//	http get http://192.0.2.1:7471/file
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	_ "github.com/goverbs/goverbs/provider/all"
	"github.com/goverbs/goverbs/rsocket"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	if len(args) == 2 && args[0] == "serve" {
		l, err := rsocket.Listen("tcp", ":7471")
		if err != nil {
			return err
		}
		return serve(ctx, l, args[1])
	}
	if len(args) == 2 && args[0] == "get" {
		return get(ctx, args[1], out)
	}
	return errors.New("usage: http serve DIRECTORY | http get URL")
}

// serve serves the files of a directory until ctx ends, and then finishes the requests that have begun.
func serve(ctx context.Context, l net.Listener, dir string) error {
	server := &http.Server{Handler: http.FileServer(http.Dir(dir)), ReadHeaderTimeout: 10 * time.Second}
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	err := server.Shutdown(ctx)
	if served := <-served; served != http.ErrServerClosed {
		err = errors.Join(err, served)
	}
	return err
}

// get writes the file with a URL to out.
func get(ctx context.Context, url string, out io.Writer) error {
	transport := &http.Transport{DialContext: new(rsocket.Dialer).DialContext}
	defer transport.CloseIdleConnections()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	response, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", url, response.Status)
	}
	_, err = io.Copy(out, response.Body)
	return err
}
