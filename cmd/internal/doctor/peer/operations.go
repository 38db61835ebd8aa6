package peer

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/goverbs/goverbs/cmd/internal/doctor/check"
	"github.com/goverbs/goverbs/rdma"
)

// operationTimeout limits each operation.
const operationTimeout = 20 * time.Second

// A client is the connecting end.
type client struct {
	*rdma.Conn
	token rdma.Token // the peer's memory
}

// operations lists what is tried, in this order.
var operations = []struct {
	id, name string
	do       func(c *client, ctx context.Context) error
}{
	{"send", "messages of 1 byte to 64 KiB, there and back", (*client).messages},
	{"read", "an RDMA READ of 1 MiB", (*client).read},
	{"write", "an RDMA WRITE of 1 MiB", (*client).write},
	{"atomic", "FETCH_ADD and COMPARE_SWAP", (*client).atomics},
}

// operate tries each operation, and measures if all work.
func (p path) operate(ctx context.Context, r *rdma.Conn) (all []check.Finding, _ *Figures) {
	short, cancel := context.WithTimeout(ctx, operationTimeout)
	token, err := rdma.RecvToken(short, r)
	cancel()
	if err == nil && token.Len != regionSize {
		err = fmt.Errorf("the peer shares %d bytes, want %d", token.Len, regionSize)
	}
	if err != nil {
		return []check.Finding{p.result("share", "the peer's memory", err)}, nil
	}
	c := &client{Conn: r, token: token}
	for _, o := range operations {
		short, cancel := context.WithTimeout(ctx, operationTimeout)
		err := o.do(c, short)
		cancel()
		all = append(all, p.result(o.id, o.name, err))
		if err != nil {
			return all, nil // the connection may have ended
		}
	}
	figures, err := c.measure(ctx)
	if err != nil {
		return append(all, p.result("figures", "the measurement", err)), nil
	}
	return all, figures
}

// result returns the finding of an operation.
func (p path) result(id, name string, err error) check.Finding {
	f := check.Finding{ID: id, Severity: check.Error}
	switch {
	case err == nil:
		return check.Finding{ID: id, Seen: name + ": works, and the data is right"}
	case errors.Is(err, errDamaged):
		f.Why = "a program would use damaged data: packets are changed on the way, or at one end"
		f.Fix = "ethtool -S " + cmp.Or(p.netdev, "INTERFACE") + " (at both ends and at the switches: look for errors)"
	case id == "ud":
		f.Why = "datagrams do not reach the peer, or their replies do not come back: programs that use UD fail"
		f.Fix = p.connectFailed(err).Fix
	default:
		f.Why = "the ends are connected, and programs that use this operation fail"
		f.Fix = p.fitMTU()
	}
	f.Seen = name + ": " + err.Error()
	return f
}

func (c *client) messages(ctx context.Context) error {
	for _, n := range []int{1, 64, 4096, 65536} {
		sent := make([]byte, n)
		pattern(sent, seedWritten)
		m, err := c.Call(ctx, sent)
		if err != nil {
			return err
		}
		same := bytes.Equal(m.Bytes(), sent)
		m.Release()
		if !same {
			return errDamaged
		}
	}
	return nil
}

func (c *client) read(ctx context.Context) error {
	got, want := make([]byte, regionSize-8), make([]byte, regionSize-8)
	pattern(want, seedOffered)
	if err := c.Read(ctx, got, c.token, 0); err != nil {
		return err
	}
	if !bytes.Equal(got, want) {
		return errDamaged
	}
	return nil
}

// write compares the peer's checksum of its memory with the checksum of what was written.
func (c *client) write(ctx context.Context) error {
	b := make([]byte, regionSize-8)
	pattern(b, seedWritten)
	if err := c.Write(ctx, b, c.token, 0); err != nil {
		return err
	}
	m, err := c.Call(ctx, nil)
	if err != nil {
		return err
	}
	defer m.Release()
	if len(m.Bytes()) != 4 || binary.BigEndian.Uint32(m.Bytes()) != sum(b) {
		return errDamaged
	}
	return nil
}

// atomics uses the last 8 bytes, which are 0 at first.
func (c *client) atomics(ctx context.Context) error {
	const off, first, second = regionSize - 8, 40, 2
	if old, err := c.FetchAdd(ctx, c.token, off, first); err != nil || old != 0 {
		return wrong(err)
	}
	if old, err := c.FetchAdd(ctx, c.token, off, second); err != nil || old != first {
		return wrong(err)
	}
	if old, err := c.CompareAndSwap(ctx, c.token, off, first+second, 7); err != nil || old != first+second {
		return wrong(err)
	}
	if old, err := c.FetchAdd(ctx, c.token, off, 0); err != nil || old != 7 {
		return wrong(err)
	}
	return nil
}

// wrong returns err, or that a value was wrong.
func wrong(err error) error {
	if err == nil {
		return errDamaged
	}
	return err
}
