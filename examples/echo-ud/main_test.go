package main

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	"github.com/goverbs/goverbs/rdma"
	"github.com/goverbs/goverbs/verbstest"
)

// TestEcho checks that a client finds the server and gets its datagrams back, also if some are lost.
func TestEcho(t *testing.T) {
	for name, c := range map[string]struct {
		fault verbstest.PacketFault
	}{
		"quiet": {},
		"loss":  {verbstest.PacketFault{Action: verbstest.Drop, Skip: 6, Count: 2}},
	} {
		t.Run(name, func(t *testing.T) {
			n := verbstest.NewNetwork(t)
			here, there := n.Machine(), n.Machine()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			serving, stop := context.WithCancel(ctx)
			served := make(chan error, 1)
			there.Run(func() { go func() { served <- run(serving, "serve", "239.1.2.3", &rdma.GroupOptions{}, 0, 0, nil) }() })
			if c.fault.Count > 0 {
				n.AddFault(c.fault)
			}
			var out bytes.Buffer
			here.Run(func() {
				if err := run(ctx, "ping", "239.1.2.3", &rdma.GroupOptions{}, 20, 64, &out); err != nil {
					t.Error(err)
				}
			})
			stop()
			if err := <-served; err != nil {
				t.Error(err)
			}
			none := strings.Contains(out.String(), "20 pings, 0 lost;")
			if !strings.Contains(out.String(), "20 pings, ") || none && c.fault.Count > 0 {
				t.Errorf("the client printed %q", &out)
			}
		})
	}
}
