package guide

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/goverbs/goverbs/rdma"
)

// ServeUsers looks users up until ctx ends. Then the calls in progress may finish, for up to ten seconds.
func ServeUsers(ctx context.Context, l *rdma.Listener, users map[string]string) error {
	find := func(ctx context.Context, r *rdma.Request) (reply []byte, err error) {
		user, ok := users[string(r.Bytes())]
		if !ok {
			return nil, &rdma.CallError{Code: rdma.CodeNotFound, Text: "no such user"}
		}
		return []byte(user), nil
	}
	drained := make(chan error, 1)
	context.AfterFunc(ctx, func() {
		soon, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		drained <- l.Shutdown(soon)
	})
	if err := l.Serve(context.Background(), rdma.Handle(Logged(find), nil)); err != nil {
		return err
	}
	return <-drained
}

// Logged is an interceptor: it logs what another handler does.
func Logged(next rdma.Handler) rdma.Handler {
	return func(ctx context.Context, r *rdma.Request) (reply []byte, err error) {
		start := time.Now()
		reply, err = next(ctx, r)
		slog.InfoContext(ctx, "handled", "peer", r.Conn().RemoteAddr(), "tenant", r.Metadata()["tenant"],
			"time", time.Since(start), "error", err)
		return reply, err
	}
}

// FindUser asks for a user of a tenant. It waits for ten seconds.
func FindUser(ctx context.Context, c *rdma.Conn, tenant, name string) (user string, found bool, err error) {
	ctx, cancel := context.WithTimeout(rdma.WithMetadata(ctx, "tenant", tenant), 10*time.Second)
	defer cancel()
	m, err := c.Call(ctx, []byte(name))
	var failed *rdma.CallError
	if errors.As(err, &failed) && failed.Code == rdma.CodeNotFound {
		return "", false, nil
	}
	if err != nil {
		return "", false, err
	}
	return string(m.Copy()), true, nil
}
