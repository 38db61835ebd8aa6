// Asyncwatch prints the asynchronous events of an RDMA device as they come. Its
// options and its text are those of ibv_asyncwatch of rdma-core.
//
//	asyncwatch -d rxe0
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"syscall"

	_ "github.com/goverbs/goverbs/provider/all"
	"github.com/goverbs/goverbs/uverbs"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := run(ctx, os.Args[1:], os.Stdout)
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "asyncwatch:", err)
		os.Exit(1)
	}
}

const usageText = `Usage:
  asyncwatch            start an asyncwatch process

Options:
  -d, --ib-dev=<dev>     use IB device <dev> (default first device found)
  -h, --help             print a help text and exit
`

func run(ctx context.Context, args []string, w io.Writer) error {
	name, err := parse(args, w)
	if err != nil {
		return err
	}
	c, err := open(name)
	if err != nil {
		return err
	}
	return errors.Join(watch(ctx, c, w), c.Close())
}

// parse returns the name of the device. Help goes to w.
func parse(args []string, w io.Writer) (device string, err error) {
	f := flag.NewFlagSet("asyncwatch", flag.ContinueOnError)
	f.SetOutput(io.Discard) // an error is returned, and told once
	for _, name := range []string{"d", "ib-dev"} {
		f.StringVar(&device, name, "", "")
	}
	switch err := f.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		_, werr := io.WriteString(w, usageText)
		return "", errors.Join(err, werr)
	case err != nil:
		return "", fmt.Errorf("%w: see --help", err)
	case f.NArg() > 0:
		return "", fmt.Errorf("%q is no option: name a device by -d, see --help", f.Arg(0))
	}
	return device, nil
}

// open opens the device of that name, or the first of all: its port need not be
// active.
func open(name string) (*uverbs.Context, error) {
	if name != "" {
		return uverbs.Open(name)
	}
	devices, err := uverbs.Devices()
	if err != nil || len(devices) == 0 {
		return uverbs.Open("") // which says what is missing
	}
	return devices[0].Open()
}

// A source is where events come from: a Context.
type source interface {
	Name() string
	NextEvent(context.Context) (uverbs.AsyncEvent, error)
}

// watch prints events until ctx ends.
func watch(ctx context.Context, s source, w io.Writer) error {
	if _, err := fmt.Fprintf(w, "%s: async event FD %s\n", s.Name(), eventFD("/proc/self/fd")); err != nil {
		return err
	}
	for {
		e, err := s.NextEvent(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintf(w, "  event_type %s (%d), port %d\n", eventName(e.Type), e.Type, e.Port); err != nil {
			return err
		}
	}
}

// eventFD is the number of the descriptor that events are read from, which is
// of interest to nobody but to those who compare this program with another.
func eventFD(dir string) string {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return "-1"
	}
	for _, e := range entries {
		target, err := os.Readlink(dir + "/" + e.Name())
		if _, nerr := strconv.Atoi(e.Name()); err == nil && nerr == nil && target == "anon_inode:[infinibandevent]" {
			return e.Name()
		}
	}
	return "-1"
}

// eventName is the name that ibv_asyncwatch has for an event: it knows those of
// a port or of the device, but a change of speed. Events of queues do not come to
// a program that has made none.
func eventName(t uverbs.EventType) string {
	names := map[uverbs.EventType]string{
		uverbs.EventDeviceFatal:      "IBV_EVENT_DEVICE_FATAL",
		uverbs.EventPortActive:       "IBV_EVENT_PORT_ACTIVE",
		uverbs.EventPortErr:          "IBV_EVENT_PORT_ERR",
		uverbs.EventLIDChange:        "IBV_EVENT_LID_CHANGE",
		uverbs.EventPKeyChange:       "IBV_EVENT_PKEY_CHANGE",
		uverbs.EventSMChange:         "IBV_EVENT_SM_CHANGE",
		uverbs.EventClientReregister: "IBV_EVENT_CLIENT_REREGISTER",
		uverbs.EventGIDChange:        "IBV_EVENT_GID_CHANGE",
	}
	if s, ok := names[t]; ok {
		return s
	}
	return "unexpected"
}
