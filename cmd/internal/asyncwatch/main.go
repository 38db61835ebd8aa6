// Package asyncwatch is the program asyncwatch, which cmd/asyncwatch documents.
package asyncwatch

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

	"github.com/goverbs/goverbs/internal/version"
	_ "github.com/goverbs/goverbs/provider/all"
	"github.com/goverbs/goverbs/uverbs"
)

// Main is the main function of the program.
func Main() {
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
	if version.Asked(args) {
		return version.Print(w, "asyncwatch")
	}
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

// parse returns the name of the device. It prints help to w.
func parse(args []string, w io.Writer) (device string, err error) {
	f := flag.NewFlagSet("asyncwatch", flag.ContinueOnError)
	f.SetOutput(io.Discard) // main prints the error
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
		return "", fmt.Errorf("unexpected argument %q: select a device with -d, see --help", f.Arg(0))
	}
	return device, nil
}

// open opens the device called name, or the first device if name is "", even if
// its port is not active.
func open(name string) (*uverbs.Context, error) {
	if name != "" {
		return uverbs.Open(name)
	}
	devices, err := uverbs.Devices()
	if err != nil || len(devices) == 0 {
		return uverbs.Open("") // for its error, which names the cause
	}
	return devices[0].Open()
}

// A source returns events. It is a uverbs.Context outside of tests.
type source interface {
	Name() string
	NextEvent(context.Context) (uverbs.AsyncEvent, error)
}

// watch prints events until ctx is done.
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

// eventFD returns the number of the descriptor from which events are read, or -1.
// ibv_asyncwatch prints it.
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

// eventName returns the name that ibv_asyncwatch prints for an event. It names
// the events of ports and devices, except a speed change. Events of queues do not
// occur, because the program creates none.
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
