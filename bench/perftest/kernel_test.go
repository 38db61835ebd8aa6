//go:build device

package perftest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	_ "github.com/goverbs/goverbs/provider/all"
	"github.com/goverbs/goverbs/uverbs"
)

// On a real device a message allocates nothing either. Both ends are in this process
// and connect by the device's own address.
func TestDeviceNothingAllocated(t *testing.T) {
	for command, more := range map[string]int{"send_lat": 500, "send_bw -s 64 -q 2": 2000, "write_bw -s 64 -l 10": 2000,
		"send_bw -s 64 -b --no_lock": 2000} {
		t.Run(strings.ReplaceAll(command, " ", ""), func(t *testing.T) {
			allocates(t, more, func(n int) {
				play(t, os.Getenv("GOVERBS_ADDRESS"), fmt.Sprintf("%s -d %s -n %d", command, os.Getenv("GOVERBS_DEVICE"), n),
					[2]func(string) (*uverbs.Context, error){findDevice, findDevice})
			})
		})
	}
}

// controlOnly starts a client and stops where the server listens for its QP.
func controlOnly(ctx context.Context, o *Options) (e *endpoint, err error) {
	o.out, o.run = io.Discard, 7
	if err := o.normalize(); err != nil {
		return nil, err
	}
	dev, err := openDevice(o, findDevice)
	if err != nil {
		return nil, err
	}
	e = &endpoint{o: o, dev: dev}
	w, err := o.connectControl(ctx)
	if err != nil {
		return e, err
	}
	e.ctl = &control{wire: w, client: true, withGID: o.withGID, binary: true}
	if err := e.ctl.agree(ctx, o); err != nil {
		return e, err
	}
	if err := e.prepareObjects(); err != nil {
		return e, err
	}
	return e, e.syncByCM(ctx)
}

// finish completes the run of such a client.
func (e *endpoint) finish(ctx context.Context) error {
	if err := e.dial(ctx); err != nil {
		return err
	}
	if err := e.syncByCM(ctx); err != nil {
		return err
	}
	if err := e.handshake(ctx); err != nil {
		return err
	}
	return e.measure(ctx)
}

// A client that connects between the control connection and the QPs of another one is
// rejected, and the other one succeeds.
func TestDeviceSecondClient(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	device, host, port := os.Getenv("GOVERBS_DEVICE"), os.Getenv("GOVERBS_ADDRESS"), strconv.Itoa(freePort(t))
	options := func(server string) *Options {
		o, err := Parse(Test{Verb: Send}, []string{"-R", "-n", "20", "-d", device, "-p", port})
		if err != nil {
			t.Fatal(err)
		}
		o.Server = server
		return o
	}
	served := make(chan error, 1)
	go func() { served <- Run(ctx, options(""), io.Discard) }()
	first, err := controlOnly(ctx, options(host))
	if err == nil {
		if err := Run(ctx, options(host), io.Discard); !errors.Is(err, errBusy) {
			t.Errorf("the second client: %v", err)
		}
		err = first.finish(ctx)
	}
	if first != nil {
		err = errors.Join(err, first.close())
	}
	if err != nil {
		t.Error(err)
		cancel()
	}
	if err := <-served; err != nil {
		t.Errorf("the server: %v", err)
	}
}

// An address without a route is an error.
func TestDeviceNoRoute(t *testing.T) {
	o, err := Parse(Test{Verb: Send}, []string{"-R", "-d", os.Getenv("GOVERBS_DEVICE"), "203.0.113.1"})
	if err != nil {
		t.Fatal(err)
	}
	if err := Run(t.Context(), o, io.Discard); err == nil || !strings.Contains(err.Error(), "203.0.113.1") {
		t.Error(err)
	}
}
