// Rkv is a key-value store over RDMA: PUT is a call, and GET reads the server's table without the server's program.
//
//	rkv serve ADDR | rkv put ADDR KEY VALUE | rkv get ADDR KEY | rkv bench ADDR
package main

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"log"
	"os"
	"os/signal"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	_ "github.com/goverbs/goverbs/provider/all"
	"github.com/goverbs/goverbs/rdma"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	if len(args) == 2 && args[0] == "serve" {
		return serve(ctx, args[1])
	}
	if len(args) < 2 {
		return errors.New("usage: rkv serve|put|get|bench ADDR ...")
	}
	c := rdma.NewClient(args[1], rdma.ClientOptions[rdma.Token]{Conns: 4, Setup: rdma.RecvToken})
	defer c.Close()
	switch {
	case args[0] == "put" && len(args) == 4:
		version, err := put(ctx, c, args[2], []byte(args[3]))
		fmt.Fprintln(out, "version", version)
		return err
	case args[0] == "get" && len(args) == 3:
		r, err := get(ctx, c, args[2])
		fmt.Fprintf(out, "%s (version %d)\n", r.Value, r.Version)
		return err
	case args[0] == "bench" && len(args) == 2:
		return bench(ctx, c, 20, out)
	}
	return errors.New("usage: rkv serve|put|get|bench ADDR ...")
}

// The table has slots of a CRC-32, a length and a record. A record is in one of the first probes slots for its key.
const slots, slotSize, probes = 4096, 1024, 8

var le, errNotFound = binary.LittleEndian, errors.New("not found")

type record struct {
	Key     string
	Value   []byte
	Version uint64
}

func (r *record) encode() []byte {
	j, _ := json.Marshal(r) // of such a type, it never fails
	return append(le.AppendUint32(le.AppendUint32(nil, crc32.ChecksumIEEE(j)), uint32(len(j))), j...)
}

// decode returns the record in a slot, which is empty in an empty slot. It returns false if the slot is being written.
func decode(b []byte) (r record, ok bool) {
	if len(b) < 8 {
		return r, false
	}
	crc, n, j := le.Uint32(b), int(le.Uint32(b[4:])), b[8:]
	return r, crc|uint32(n) == 0 || n <= len(j) && crc32.ChecksumIEEE(j[:n]) == crc && json.Unmarshal(j[:n], &r) == nil
}

// offset returns where the i-th slot for a key is.
func offset(key string, i int) int {
	return (int(crc32.ChecksumIEEE([]byte(key)))%slots + i) % slots * slotSize
}

// serve shares the table with each client, and carries out its calls.
func serve(ctx context.Context, addr string) error {
	table := rdma.NewRegion(slots * slotSize)
	l, err := rdma.Listen(addr, nil)
	if err != nil {
		return err
	}
	log.Printf("serving %d slots at %v", slots, l.Addr())
	var mu sync.Mutex
	err = l.Serve(ctx, func(ctx context.Context, c *rdma.Conn) error {
		if _, err := c.SendToken(ctx, table, rdma.CanRead); err != nil {
			return err
		}
		return c.ServeCalls(ctx, func(request []byte) []byte {
			mu.Lock()
			defer mu.Unlock()
			return le.AppendUint64(nil, store(table.Bytes(), request))
		})
	})
	return errors.Join(err, table.Close())
}

// store stores the record of a request. It returns the version, or 0 if that is not possible.
func store(table, request []byte) uint64 {
	r, ok := decode(request)
	for i := 0; ok && r.Key != "" && i < probes; i++ {
		b := table[offset(r.Key, i):][:slotSize]
		old, _ := decode(b)
		r.Version = old.Version + 1
		if e := r.encode(); (old.Key == "" || old.Key == r.Key) && len(e) <= slotSize {
			copy(b, e)
			return r.Version
		}
	}
	return 0
}

// A client has the token of the table for each connection.
type client = rdma.Client[rdma.Token]

// put stores a value. If the connection ends, it calls again: to store it twice only changes its version.
func put(ctx context.Context, c *client, key string, value []byte) (version uint64, err error) {
	request := (&record{Key: key, Value: value}).encode()
	err = c.Retry(ctx, func(ctx context.Context, conn *rdma.Conn, _ rdma.Token) error {
		m, err := conn.Call(ctx, request)
		if err != nil {
			return err
		}
		defer m.Release()
		if version = le.Uint64(m.Bytes()); version == 0 {
			return errors.New("the table has no room for the record")
		}
		return nil
	})
	return version, err
}

// get reads the slots where the key may be.
func get(ctx context.Context, c *client, key string) (r record, err error) {
	err = c.Retry(ctx, func(ctx context.Context, conn *rdma.Conn, table rdma.Token) error {
		var b [slotSize]byte
		for i := 0; i < probes; i++ {
			for ok := false; !ok; { // it is read again while it is being written
				if err := conn.Read(ctx, b[:], table, offset(key, i)); err != nil {
					return err
				}
				r, ok = decode(b[:])
			}
			if r.Key == key {
				return nil
			}
		}
		return errNotFound
	})
	return r, err
}

// bench has 64 workers that put and get a key of their own and one that all use, and check what they get.
func bench(ctx context.Context, c *client, rounds int, out io.Writer) (err error) {
	errs, start := make(chan error, 64), time.Now()
	var lost atomic.Int64 // values that a server that was restarted does not have
	for w := range 64 {
		go func() { errs <- work(ctx, c, fmt.Sprint("worker-", w), rounds, &lost) }()
	}
	for range 64 {
		err = errors.Join(err, <-errs)
	}
	fmt.Fprintf(out, "%d operations in %v; %d values lost by restarts\n", 640*rounds, time.Since(start), lost.Load())
	return err
}

func work(ctx context.Context, c *client, key string, rounds int, lost *atomic.Int64) error {
	for i := range rounds {
		value := fmt.Sprintf("%s:%d:%0*d", key, i, i*37%300, i)
		for _, k := range []string{key, "common"} {
			if _, err := put(ctx, c, k, []byte(value)); err != nil {
				return err
			}
		}
		for k := range 8 {
			r, err := get(ctx, c, []string{key, "common"}[k%2])
			switch {
			case errors.Is(err, errNotFound):
				lost.Add(1)
			case err != nil:
				return err
			case k%2 == 0 && string(r.Value) != value:
				return fmt.Errorf("%s is %q, not %q", key, r.Value, value)
			}
		}
	}
	return nil
}
