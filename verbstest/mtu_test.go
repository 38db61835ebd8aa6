package verbstest_test

import (
	"context"
	"testing"
	"time"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/uverbs"
	"github.com/goverbs/goverbs/verbstest"
)

// TestMTU checks that open and later contexts query the MTU of a port.
func TestMTU(t *testing.T) {
	m := verbstest.New(t)
	active := func(c *uverbs.Context) uverbs.MTU { return must(c.QueryPort(1))(t).ActiveMTU }
	c := must(uverbs.Open(m.Device()))(t)
	defer c.Close()
	m.SetMTU(uverbs.MTU512)
	later := must(uverbs.Open(m.Device()))(t)
	defer later.Close()
	if a, b := active(c), active(later); a != uverbs.MTU512 || b != uverbs.MTU512 {
		t.Errorf("active MTU: %v in an open context, %v in a later one", a, b)
	}
}

// TestPathMTU checks that connections have the path MTU of the machine that requests them.
func TestPathMTU(t *testing.T) {
	for _, o := range []struct {
		name                   string
		options                []verbstest.Option
		server, client, expect uverbs.MTU
	}{
		{"Ethernet", nil, uverbs.MTU4096, uverbs.MTU512, uverbs.MTU512},
		{"InfiniBand", []verbstest.Option{verbstest.InfiniBand()}, uverbs.MTU256, uverbs.MTU2048, uverbs.MTU256},
	} {
		t.Run(o.name, func(t *testing.T) {
			p := newPair(t, o.options...)
			p.client.Allow(verbstest.ReceiveLate) // it reads no message
			p.server.SetMTU(o.server)
			p.client.SetMTU(o.client)
			p.client.Run(func() {
				ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
				defer cancel()
				c := must(cm.Dial(ctx, p.server.AddrPort(7471).String(), nil))(t)
				defer c.Close()
				if a, err := c.QP().Query(uverbs.MaskPathMTU); err != nil || a.PathMTU != o.expect {
					t.Errorf("path MTU %v, want %v: %v", a.PathMTU, o.expect, err)
				}
			})
		})
	}
}
