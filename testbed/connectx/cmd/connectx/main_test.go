package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/internal/sim/leaktest"
	"github.com/goverbs/goverbs/testbed/connectx"
	"github.com/goverbs/goverbs/testbed/connectx/control"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// started cancels the context after the program has printed the sockets of all
// devices.
type started struct {
	bytes.Buffer
	lines int
	then  func()
}

func (s *started) Write(p []byte) (int, error) {
	n, err := s.Buffer.Write(p)
	if s.lines--; s.lines == 0 {
		s.then()
	}
	return n, err
}

// TestRun checks that the sockets exist when the program has printed them, and
// are removed at the end.
func TestRun(t *testing.T) {
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	ctx, cancel := context.WithCancel(t.Context())
	out := &started{lines: 2, then: func() {
		for _, name := range []string{"a", "b", "nic"} {
			c, err := net.Dial("unix", path(name))
			if err != nil {
				t.Error(err)
				continue
			}
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		}
		c, err := control.Dial(path("control"))
		if err != nil {
			t.Error(err)
		} else {
			devices, err := c.Devices()
			if err != nil || len(devices) != 2 {
				t.Errorf("%+v, %v", devices, err)
			}
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		}
		cancel()
	}}
	var stderr bytes.Buffer
	status := run(ctx, []string{
		"-link", "roce", "-socket", path("a"), "-socket", path("b"), "-nic", path("nic"), "-control", path("control"),
		"-trace", path("trace"), "-pcap", path("pcap"), "-pci-id", "0x1019", "-guid", "0x2c90300a0b0c0", "-firmware",
		"14.20.1",
		"-cap", "cqe_version=0", "-cap", "log_max_qp=10", "-strict=false", "-seed", "7",
	}, out, &stderr)
	want := fmt.Sprintf("connectx0 is at %s\nconnectx1 is at %s\n", path("a"), path("b"))
	if status != 0 || out.String() != want || stderr.Len() != 0 {
		t.Errorf("status %d, said %q, want %q, and %q", status, out, want, &stderr)
	}
	left, err := filepath.Glob(path("*"))
	if err != nil || !slices.Equal(left, []string{path("pcap"), path("trace")}) {
		t.Errorf("left: %v, %v", left, err)
	}
	if pcap, err := os.ReadFile(path("pcap")); err != nil || len(pcap) != 24 {
		t.Errorf("a capture of %d bytes, %v", len(pcap), err)
	}
}

// TestOptions checks the devices' configuration for the flags.
func TestOptions(t *testing.T) {
	o, err := parse([]string{"-socket", "x", "-link", "roce", "-pci-id", "0x101d", "-firmware", "1.2.3", "-cap", "roce=0",
		"-stale-srqn", "-shuffle-rq", "2", "-shuffle-srq", "3", "-reorder", "7",
		"-odp", "-ece", "0x10000004", "-first-uar", "65536"},
		&bytes.Buffer{})
	if err != nil {
		t.Fatal(err)
	}
	d := o.device
	if d.PCIDevice != 0x101d || d.Firmware != [3]uint16{1, 2, 3} || d.Lenient || o.link != connectx.Ethernet ||
		len(d.Capabilities) != 1 || d.Capabilities[0].Field.Name != "roce" || d.Capabilities[0].Value != 0 {
		t.Errorf("%+v", o)
	}
	var c connectx.Config
	if o.adapt(0, &c); !c.StaleSRQN || c.ShuffleRQ != 2 || c.ShuffleSRQ != 3 || c.Reorder != 7 || !c.ODP ||
		c.ECE != 0x10000004 || c.FirstUAR != 65536 {
		t.Errorf("a device of the options: %+v", c)
	}
	names := map[string]bool{}
	for _, c := range connectx.Offered(connectx.Ethernet) {
		if names[c.Field.Name] {
			t.Errorf("there are two capabilities of the name %s", c.Field.Name)
		}
		names[c.Field.Name] = true
	}
}

// TestMistakes checks the errors of invalid command lines, which must leave
// nothing behind.
func TestMistakes(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	for want, args := range map[string][]string{
		"at least one -socket":         {},
		"no other arguments":           {"-socket", socket, "x"},
		"want ib or roce":              {"-socket", socket, "-link", "x"},
		"three numbers":                {"-socket", socket, "-firmware", "1.2"},
		"invalid syntax":               {"-socket", socket, "-firmware", "1.2.x"},
		"-pci-id":                      {"-socket", socket, "-pci-id", "0x10000"},
		"-guid":                        {"-socket", socket, "-guid", "x"},
		"-pcap need -link roce":        {"-socket", socket, "-nic", "y"},
		"has no such capability":       {"-socket", socket, "-cap", "wq_signature=1"},
		"want name=number":             {"-socket", socket, "-cap", "roce"},
		"the maximum is 1":             {"-socket", socket, "-cap", "cqe_version=2"},
		"InfiniBand has no frames":     {"-socket", socket, "-pcap", socket + ".pcap"},
		"no such file or directory":    {"-socket", socket, "-trace", socket + "/x/y"},
		"bind: ":                       {"-socket", socket, "-control", filepath.Join(filepath.Dir(socket), "no", "s")},
		"bind: address already in use": {"-socket", socket, "-link", "roce", "-nic", socket},
	} {
		var out, stderr bytes.Buffer
		if status := run(t.Context(), args, &out, &stderr); status != 2 || !strings.Contains(stderr.String(), want) ||
			out.Len() != 0 {
			t.Errorf("%q: status %d, %q, %q, want %q", args, status, &out, &stderr, want)
		}
		if _, err := os.Stat(socket); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%q: the socket still exists: %v", args, err)
		}
	}
	if status := run(t.Context(), []string{"-h"}, &bytes.Buffer{}, &bytes.Buffer{}); status != 0 {
		t.Errorf("-h: status %d", status)
	}
}
