package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/minio/minio-go/v7"
	"golang.org/x/sys/unix"
)

// largest is the length of the largest object.
const largest = 64 << 20

// operations are measured, with a number of requests in a round.
var operations = []struct {
	method, size string
	length       int
	count        int
}{
	{"PUT", "64KiB", 64 << 10, 50},
	{"GET", "64KiB", 64 << 10, 50},
	{"PUT", "1MiB", 1 << 20, 20},
	{"GET", "1MiB", 1 << 20, 20},
	{"PUT", "64MiB", largest, 2},
	{"GET", "64MiB", largest, 2},
}

// measure prints the figures of all clients, for one request: the median, the lowest and the highest.
func measure(clients []*client, rounds int) error {
	for _, op := range operations {
		cpu, tcp := map[string][]int64{}, map[string][]int64{}
		for range rounds {
			for _, c := range clients {
				one, octets, err := c.round(op.method, op.length, op.count)
				if err != nil {
					return fmt.Errorf("%s of %s by %s: %w", op.method, op.size, c.name, err)
				}
				cpu[c.name], tcp[c.name] = append(cpu[c.name], one), append(tcp[c.name], octets)
			}
		}
		for _, c := range clients {
			slices.Sort(cpu[c.name])
			slices.Sort(tcp[c.name])
			fmt.Printf("%s %6s %-6s %9d (%d to %d), %d on TCP\n", op.method, op.size, c.name, cpu[c.name][rounds/2],
				cpu[c.name][0], cpu[c.name][rounds-1], tcp[c.name][rounds/2])
		}
	}
	return nil
}

// round returns the CPU time and the bytes on TCP of one request.
func (c *client) round(method string, n, count int) (cpu, tcp int64, err error) {
	do := c.putObject
	if method == "GET" {
		do = c.getObject
	}
	if err := c.putObject(n); err != nil {
		return 0, 0, err
	}
	if err := do(n); err != nil { // what follows begins in the same state
		return 0, 0, err
	}
	runtime.GC()
	if err := c.check(2 * int64(n)); err != nil {
		return 0, 0, err
	}
	began, err1 := cpuTime()
	before, err2 := octets()
	for range count {
		if err := do(n); err != nil {
			return 0, 0, err
		}
	}
	ended, err3 := cpuTime()
	after, err4 := octets()
	if err := errors.Join(err1, err2, err3, err4); err != nil {
		return 0, 0, err
	}
	return (ended - began) / int64(count), (after - before) / int64(count), c.check(int64(n * count))
}

// check returns an error if n bytes have not travelled by RDMA, as they should, since the last call.
func (c *client) check(n int64) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	moved, err := c.moved, c.failed
	c.moved, c.failed = 0, nil
	switch {
	case c.rdma.Device == nil:
		return nil
	case moved != n || err != nil:
		return fmt.Errorf("%d of %d bytes by RDMA: %w", moved, n, err)
	}
	return nil
}

func (c *client) putObject(n int) error {
	_, err := c.s3.PutObject(context.Background(), "bucket", "object", bytes.NewReader(c.put[:n]), int64(n),
		minio.PutObjectOptions{DisableMultipart: true, DisableContentSha256: true})
	return err
}

// getObject reads the object.
func (c *client) getObject(n int) error {
	o, err := c.s3.GetObject(context.Background(), "bucket", "object", minio.GetObjectOptions{})
	if err != nil {
		return err
	}
	defer o.Close()
	got := c.got[:n]
	if _, err := io.ReadFull(o, got); err != nil {
		return err
	}
	if got[0] != c.put[0] || got[n-1] != c.put[n-1] {
		return errors.New("the object has other data")
	}
	return nil
}

func cpuTime() (int64, error) {
	var t unix.Timespec
	err := unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &t)
	return t.Nano(), err
}

// octets returns how many bytes IP has received.
func octets() (int64, error) {
	text, err := os.ReadFile("/proc/net/netstat")
	if err != nil {
		return 0, err
	}
	var names []string
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if len(fields) == 0 || fields[0] != "IpExt:" {
			continue
		}
		if i := slices.Index(names, "InOctets"); i > 0 && i < len(fields) {
			return strconv.ParseInt(fields[i], 10, 64)
		}
		names = fields
	}
	return 0, errors.New("/proc/net/netstat has no InOctets")
}
