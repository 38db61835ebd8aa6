package uverbs

import (
	"context"
	"fmt"
	"io"
	"net"
	"testing"
	"testing/synctest"

	"golang.org/x/sys/unix"
)

// connectErrors returns the cases of Endpoint, QPConfig.Path, Connect and Handshake.
func connectErrors(t *testing.T) (all []errorCase) {
	r, q := raw(t, "10.1.1.1")
	pd, cq := good(r.c.AllocPD())(t), good(r.c.CreateCQ(CQConfig{Entries: 1}))(t)
	path := func(p PathConfig) error { return second(pd.CreateQP(QPConfig{Type: RC, SendCQ: cq, Path: p})) }
	inv := []error{ErrInvalid, unix.EINVAL}
	shake := func(said string) error {
		a, b := net.Pipe()
		defer a.Close()
		defer b.Close()
		go func() {
			io.WriteString(b, said)
		}()
		return q.Handshake(context.Background(), &oneWay{Conn: a})
	}
	all = []errorCase{
		{"service level", path(PathConfig{SL: 16}), inv},
		{"flow label", path(PathConfig{FlowLabel: 1 << 20}), inv},
		{"no MTU", q.Connect(Endpoint{QPN: 1}), inv},
		{"text that is no Endpoint", new(Endpoint).UnmarshalText([]byte("0007:000011")), inv},
		{"the peer speaks another protocol", shake("HTTP/1.1 400 Bad Request\r\n"), inv},
		{"the peer's Endpoint is none", shake(helloWord + " 0007\n"), inv},
		{"the peer ends the line never", shake(fmt.Sprintf("%*d", maxLine, 0)), inv},
	}
	synctest.Test(t, func(*testing.T) {
		err := q.Handshake(context.Background(), &silentConn{over: make(chan struct{})})
		all = append(all, errorCase{"the peer is silent", err, []error{unix.ETIMEDOUT}})
	})
	return all
}

// A oneWay accepts writes without a reader.
type oneWay struct{ net.Conn }

func (c *oneWay) RemoteAddr() net.Addr        { return &net.TCPAddr{IP: net.IPv4(10, 1, 1, 2), Port: 7471} }
func (c *oneWay) Write(b []byte) (int, error) { return len(b), nil }
