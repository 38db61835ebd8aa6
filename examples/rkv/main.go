// Rkv is a key-value store over RDMA: PUT is a call, and GET reads the server's table without the server's program.
//
//	rkv serve ADDR | rkv put ADDR KEY VALUE | rkv get ADDR KEY | rkv bench ADDR
package main

import (
	"context"
	"encoding/binary"
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

func run(ctx context.Context, args []string, out io.Writer) (err error) {
	if len(args) == 0 || len(args) != map[string]int{"serve": 2, "put": 4, "get": 3, "bench": 2}[args[0]] {
		return errors.New("usage: rkv serve ADDR | rkv put ADDR KEY VALUE | rkv get ADDR KEY | rkv bench ADDR")
	}
	c := rdma.NewClient(args[1], &rdma.ClientOptions[rdma.Token]{Conns: 4, Setup: rdma.RecvToken})
	defer func() { err = errors.Join(err, c.Close()) }()

	var r record
	switch args[0] {
	case "serve":
		return serve(ctx, args[1], rdma.NewRegion(slots*slotSize))
	case "put":
		r, err = put(ctx, c, args[2], args[3])
	case "get":
		r, err = get(ctx, c, args[2])
	case "bench":
		return bench(ctx, c, 20, out)
	}
	if err == nil {
		fmt.Fprintf(out, "%s (version %d)\n", r.value, r.version)
	}
	return err
}

// The table has slots for one record each. A record is in one of the first probes slots for its key. It is encoded as
// a CRC-32 of the rest, the lengths of key and value in 2 bytes each, the version in 8 bytes, the key and the value.
const slots, slotSize, probes, header = 4096, 512, 8, 16

// tries is how often get reads a slot that is being written. A PUT takes microseconds, and reads of a slot take longer.
const tries = 1000

var le, checksum, errNotFound = binary.LittleEndian, crc32.ChecksumIEEE, errors.New("not found")
var errTorn = errors.New("the checksum of a slot stays wrong: its record is damaged")
var torn, lost atomic.Int64 // what bench has seen
var storing sync.Mutex      // held to change a table

type record struct {
	key, value string
	version    uint64
}

func (r *record) encode() []byte {
	b := le.AppendUint16(le.AppendUint16(make([]byte, 4), uint16(len(r.key))), uint16(len(r.value)))
	b = append(append(le.AppendUint64(b, r.version), r.key...), r.value...)
	le.PutUint32(b, checksum(b[4:]))
	return b
}

// decode returns the record in a slot, which is empty in an empty slot. ok is false if the slot is being written.
func decode(b *[slotSize]byte) (r record, ok bool) {
	key := header + int(le.Uint16(b[4:]))
	end := key + int(le.Uint16(b[6:]))
	if end > slotSize || end > header && checksum(b[4:end]) != le.Uint32(b[:]) {
		return r, false
	}
	return record{string(b[header:key]), string(b[key:end]), le.Uint64(b[8:])}, true
}

// offset returns where the i-th slot for a key is.
func offset(key string, i int) int { return (int(checksum([]byte(key))) + i) % slots * slotSize }

// serve shares the table with each client, and carries out its calls.
func serve(ctx context.Context, addr string, table *rdma.Region) error {
	l, err := rdma.Listen(addr, nil)
	if err != nil {
		return err
	}
	log.Printf("serving %d slots at %v", slots, l.Addr())
	return errors.Join(l.Serve(ctx, func(ctx context.Context, c *rdma.Conn) error {
		if _, err := c.SendToken(ctx, table, rdma.CanRead); err != nil {
			return err
		}
		return c.Handle(ctx, func(_ context.Context, r *rdma.Request) ([]byte, error) {
			storing.Lock()
			defer storing.Unlock()
			version, err := store(table.Bytes(), r.Bytes())
			return binary.AppendUvarint(nil, version), err
		}, nil)
	}), table.Close())
}

// store stores the record of a request and returns its version.
func store(table, request []byte) (uint64, error) {
	var b [slotSize]byte
	copy(b[:], request)
	r, ok := decode(&b)
	for i := 0; ok && r.key != "" && i < probes; i++ {
		slot := table[offset(r.key, i):][:slotSize]
		if old, _ := decode((*[slotSize]byte)(slot)); old.key == "" || old.key == r.key {
			r.version = old.version + 1
			copy(slot, r.encode())
			return r.version, nil
		}
	}
	return 0, &rdma.CallError{Code: rdma.CodeResourceExhausted, Text: "the table has no room for the record"}
}

// put stores a value. If the connection ends, it calls again: to store it twice only changes its version.
func put(ctx context.Context, c *rdma.Client[rdma.Token], key, value string) (record, error) {
	r := record{key: key, value: value}
	err := c.Retry(ctx, func(ctx context.Context, conn *rdma.Conn, _ rdma.Token) error {
		m, err := conn.Call(ctx, r.encode())
		if err != nil {
			return err
		}
		defer m.Release()
		r.version, _ = binary.Uvarint(m.Bytes())
		return nil
	})
	return r, err
}

// get reads the slots where the key may be.
func get(ctx context.Context, c *rdma.Client[rdma.Token], key string) (r record, err error) {
	err = c.Retry(ctx, func(ctx context.Context, conn *rdma.Conn, table rdma.Token) error {
		for i := range probes {
			switch r, err = read(ctx, conn, table, offset(key, i)); {
			case err != nil:
				return err
			case r.key == "":
				return errNotFound
			case r.key == key:
				return nil
			}
		}
		return errNotFound
	})
	return r, err
}

// read returns the record of the slot at off. It reads the slot again while it is being written.
func read(ctx context.Context, conn *rdma.Conn, table rdma.Token, off int) (record, error) {
	var b [slotSize]byte
	for range tries {
		if err := conn.Read(ctx, b[:], table, off); err != nil {
			return record{}, err
		}
		if r, ok := decode(&b); ok {
			return r, nil
		}
		torn.Add(1)
	}
	return record{}, fmt.Errorf("slot %d, read %d times: %w", off/slotSize, tries, errTorn)
}

// bench has 64 workers that each put and get a separate key and one that all use, and check what they get.
func bench(ctx context.Context, c *rdma.Client[rdma.Token], rounds int, out io.Writer) (err error) {
	errs, start := make(chan error), time.Now()
	for w := range 64 {
		go func() { errs <- work(ctx, c, fmt.Sprint("worker-", w), rounds) }()
	}
	for range 64 {
		err = errors.Join(err, <-errs)
	}
	fmt.Fprintf(out, "%d operations in %v; %d torn reads, %d values lost by restarts\n",
		640*rounds, time.Since(start), torn.Swap(0), lost.Swap(0))
	return err
}

func work(ctx context.Context, c *rdma.Client[rdma.Token], key string, rounds int) error {
	for i := range rounds {
		value := fmt.Sprintf("%s:%d:%0*d", key, i, i*37%300, i)
		for _, k := range []string{key, "common"} {
			if _, err := put(ctx, c, k, value); err != nil {
				return err
			}
			for range 4 {
				r, err := get(ctx, c, k)
				switch {
				case errors.Is(err, errNotFound):
					lost.Add(1)
				case err != nil:
					return err
				case k == key && r.value != value:
					return fmt.Errorf("%s is %q, not %q", k, r.value, value)
				}
			}
		}
	}
	return nil
}
