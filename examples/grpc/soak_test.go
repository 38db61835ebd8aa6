//go:build soak

package main

import (
	"context"
	"fmt"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/goverbs/goverbs/verbstest"
)

// soakTime returns how long TestSoak runs: GOVERBS_SOAK_TIME, or ten minutes.
func soakTime(t *testing.T) time.Duration {
	text := os.Getenv("GOVERBS_SOAK_TIME")
	if text == "" {
		return 10 * time.Minute
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// TestSoak has 1024 requests in flight, on 64 and on 256 connections: half of the time on a network without faults,
// where all requests succeed, and half of it on one with faults.
func TestSoak(t *testing.T) {
	time.AfterFunc(soakTime(t)+10*time.Minute, func() { panic("TestSoak does not end") })
	for _, connections := range []int{64, 256} {
		t.Run(fmt.Sprint(connections), func(t *testing.T) {
			r := newRig(t, connections, verbstest.Timeouts{Reply: 50 * time.Millisecond, Repeats: 8, Ack: 16})
			var requests, failed atomic.Int64
			until := func(end time.Time) func(int) bool {
				return func(int) bool { requests.Add(1); return time.Now().After(end) }
			}
			// gRPC sends a large message in 16 round trips, each of which waits for the other requests.
			r.load(1024/connections, 4*deadline, until(time.Now().Add(soakTime(t)/4)), func(err error) { t.Error(err) })
			t.Logf("%d requests without faults", requests.Swap(0))
			end := time.Now().Add(soakTime(t) / 4)
			for round := 0; time.Now().Before(end); round++ {
				remove := r.fault(round)
				stop := time.AfterFunc(faultTime, remove)
				r.load(4, deadline, until(time.Now().Add(2*faultTime)), func(error) { failed.Add(1) })
				if stop.Stop() {
					remove()
				}
				r.recover(t)
			}
			t.Logf("%d requests with faults, of which %d failed", requests.Load(), failed.Load())
		})
	}
}

// faultTime is how long a fault lasts.
const faultTime = 5 * time.Second

// fault begins a fault, and returns a function that ends it.
func (r *rig) fault(round int) (remove func()) {
	switch round % 3 {
	case 0:
		return r.net.AddFault(verbstest.PacketFault{Action: verbstest.Drop, Probability: 0.001})
	case 1:
		return r.net.Partition(r.here, r.there)
	}
	r.there.SetPort(false)
	return func() { r.there.SetPort(true) }
}

// recover makes a call with each client, which waits until it is connected again.
func (r *rig) recover(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	for i, c := range r.clients {
		m := &message{Value: payload(small)}
		if err := c.Invoke(ctx, echoMethod, m, new(message), grpc.WaitForReady(true)); err != nil {
			t.Fatalf("client %d after the fault: %v", i, err)
		}
	}
}
