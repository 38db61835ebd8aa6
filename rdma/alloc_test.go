//go:build device && !race

package rdma_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/goverbs/goverbs/rdma"
)

// TestDeviceNothingAllocated checks that messages, calls and one-sided operations allocate nothing in the steady
// state, on both sides together. It needs a device of the kernel: one in memory allocates.
func TestDeviceNothingAllocated(t *testing.T) {
	nothingAllocated(t)
}

// TestDeviceSealedNothingAllocated is TestDeviceNothingAllocated for messages that are sealed.
func TestDeviceSealedNothingAllocated(t *testing.T) {
	sealAll(t)
	nothingAllocated(t)
}

func nothingAllocated(t *testing.T) {
	p := connect(t, nil, nil)
	ctx := t.Context()
	_, s := p.share(t, 1<<16, allRights)
	token := s.Token()
	served := make(chan error, 1)
	go func() {
		for {
			m, err := p.server.Recv(ctx)
			if err != nil {
				served <- err
				return
			}
			if m.IsCall() {
				err = m.Reply(ctx, m.Bytes())
			} else {
				err = p.server.Send(ctx, m.Bytes())
			}
			m.Release()
			if err != nil {
				served <- err
				return
			}
		}
	}()
	small, large := make([]byte, 64), make([]byte, 100000)
	buf := must(p.client.Alloc(4096))(t)
	defer buf.Release()
	region := rdma.NewRegion(1 << 20)
	part := func(n int) rdma.Buffer { return must(p.client.BufferOf(region, 0, n))(t) }
	release := func(m rdma.Message, err error) {
		check(t, err)
		m.Release()
	}
	for name, f := range map[string]func(){
		"message of 64 bytes": func() { check(t, p.client.Send(ctx, small)); release(p.client.Recv(ctx)) },
		"message of 2000":     func() { check(t, p.client.Send(ctx, large[:2000])); release(p.client.Recv(ctx)) },
		"message of 100000":   func() { check(t, p.client.Send(ctx, large)); release(p.client.Recv(ctx)) },
		"call":                func() { release(p.client.Call(ctx, small)) },
		"read":                func() { check(t, p.client.Read(ctx, small, token, 0)) },
		"read into a buffer":  func() { check(t, p.client.ReadBuffer(ctx, buf, token, 0)) },
		"write":               func() { check(t, p.client.Write(ctx, large[:5000], token, 0)) },
		"write of a buffer":   func() { check(t, p.client.WriteBuffer(ctx, buf, token, 0)) },
		"fetch and add":       func() { must(p.client.FetchAdd(ctx, token, 0, 1))(t) },
		"buffer":              func() { must(p.client.Alloc(100))(t).Release() },
		"slice":               func() { must(buf.Slice(0, 100))(t).Release() },
		"region of 2000":      func() { check(t, p.client.SendBuffer(ctx, part(2000))); release(p.client.Recv(ctx)) },
		"region of 100000":    func() { check(t, p.client.SendBuffer(ctx, part(100000))); release(p.client.Recv(ctx)) },
		"flush":               func() { check(t, p.client.Flush(ctx)) },
	} {
		rounds := 50
		if strings.HasSuffix(name, "100000") { // they take an emulated device long
			rounds = 20
		}
		for range rounds { // until all pools have what they need
			f()
		}
		if n := testing.AllocsPerRun(rounds, f); n > 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
	deadline, cancel := context.WithTimeout(ctx, time.Hour)
	defer cancel()
	for range 50 {
		release(p.client.Call(deadline, small))
	}
	if n := testing.AllocsPerRun(50, func() { release(p.client.Call(deadline, small)) }); n > 0 {
		t.Errorf("call with a deadline: %v allocations", n)
	}
	check(t, p.client.Close())
	<-served
}
