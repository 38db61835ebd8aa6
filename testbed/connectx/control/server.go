package control

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"

	"github.com/goverbs/goverbs/internal/sim/connectx/loop"
)

// MaxLine is the maximum length of a request with its newline.
const MaxLine = 64 << 10

// maxConnections is the maximum number of open connections. Others wait to be
// accepted.
const maxConnections = 16

// A Server executes requests for a world.
type Server struct {
	loop    *loop.Loop
	network Network
	devices []*Device
}

// NewServer returns a server for a world with a network.
func NewServer(l *loop.Loop, n Network) *Server { return &Server{loop: l, network: n} }

// Add adds a device. It must be called in a step of the loop.
func (s *Server) Add(d Device) error {
	if d.Name == "" {
		return errorf(ErrParam, "a device needs a name")
	}
	for _, other := range s.devices {
		if other.Name == d.Name {
			return errorf(ErrParam, "device %q already exists: use another name", d.Name)
		}
	}
	s.devices = append(s.devices, &d)
	return nil
}

// Serve executes the requests of connections to a listener until the context
// ends, and then closes them and returns nil. The server becomes the owner of
// the listener. Serve must not be called in a step of the loop.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	ctx, cancel := context.WithCancel(ctx)
	var serving sync.WaitGroup
	defer serving.Wait()
	defer cancel() // ends open connections
	closed := make(chan error, 1)
	stop := context.AfterFunc(ctx, func() { closed <- l.Close() })
	places := make(chan struct{}, maxConnections)
	for {
		select {
		case places <- struct{}{}:
		case <-ctx.Done():
			return <-closed
		}
		conn, err := l.Accept()
		if err != nil {
			if !stop() { // the context has ended
				return <-closed
			}
			return errors.Join(err, l.Close())
		}
		serving.Go(func() {
			s.ServeConn(ctx, conn)
			<-places
		})
	}
}

// ServeConn executes the requests of a connection until the context or the
// connection ends. Invalid requests get an error response. A connection that is
// closed by the peer is not an error.
func (s *Server) ServeConn(ctx context.Context, conn net.Conn) {
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer conn.Close()
	defer stop()
	lines := bufio.NewReaderSize(conn, MaxLine)
	for {
		line, err := lines.ReadSlice('\n')
		if err == bufio.ErrBufferFull {
			s.reply(conn, response{Error: &Error{ErrSyntax, "the maximum length of a line is 64 KiB"}})
			return
		}
		if err != nil && (err != io.EOF || len(line) == 0) {
			return
		}
		if s.reply(conn, s.respond(line)) != nil || err != nil {
			return
		}
	}
}

// request is a request line, response a response line.
type request struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
}

type response struct {
	ID     json.RawMessage `json:"id,omitempty"`
	Result json.RawMessage `json:"result,omitempty"`
	Error  *Error          `json:"error,omitempty"`
}

func (s *Server) reply(w io.Writer, r response) error {
	line, err := json.Marshal(r)
	if err == nil {
		_, err = w.Write(append(line, '\n'))
	}
	return err
}

// respond executes a request and returns the response.
func (s *Server) respond(line []byte) response {
	var r request
	if err := json.Unmarshal(line, &r); err != nil {
		return response{Error: &Error{ErrSyntax, err.Error()}}
	}
	m, ok := methods[r.Method]
	if !ok {
		return response{ID: r.ID, Error: &Error{ErrMethod,
			fmt.Sprintf("%.80q: the methods are %s", r.Method, strings.Join(slices.Sorted(maps.Keys(methods)), ", "))}}
	}
	result, err := s.carryOut(m, r.Params)
	if err != nil {
		return response{ID: r.ID, Error: asError(err)}
	}
	return response{ID: r.ID, Result: result}
}

// carryOut executes a method in a step of the loop. It encodes the result
// there, because the result may be part of the world.
func (s *Server) carryOut(m method, params json.RawMessage) (b json.RawMessage, err error) {
	s.loop.Run(func() {
		var result any
		if result, err = m(s, params); err == nil {
			b, err = json.Marshal(result)
		}
	})
	return b, err
}
