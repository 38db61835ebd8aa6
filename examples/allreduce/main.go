// Allreduce adds up the vectors of several processes, so that each has the sum, as training on many machines does with
// gradients. Each process sends to the next one in a ring, from its vector without a copy.
//
//	allreduce RANK ADDR ADDR... # one process for each address, with the ranks 0, 1 and so on
package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log"
	"math"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	_ "github.com/goverbs/goverbs/provider/all"
	"github.com/goverbs/goverbs/rdma"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if len(os.Args) < 4 {
		log.Fatal("usage: allreduce RANK ADDR ADDR...")
	}
	rank, err := strconv.Atoi(os.Args[1])
	if err == nil {
		err = run(ctx, rank, os.Args[2:], 16<<20, 10, os.Stdout)
	}
	if err != nil {
		log.Fatal(err)
	}
}

// run adds up vectors of count numbers, again and again, and checks the sums.
func run(ctx context.Context, rank int, addrs []string, count, rounds int, out io.Writer) error {
	n := len(addrs)
	if rank < 0 || rank >= n {
		return fmt.Errorf("rank %d: there are %d addresses", rank, n)
	}
	vector := rdma.NewRegion(4 * count)
	return errors.Join(ring(ctx, addrs[rank], addrs[(rank+1)%n], func(ctx context.Context, prev, next *rdma.Conn) error {
		began := time.Now()
		for round := range rounds {
			fill(vector.Bytes(), float32(rank+round))
			if err := allReduce(ctx, prev, next, vector, rank, n); err != nil {
				return err
			}
			if err := check(vector.Bytes(), n, n*(n-1)/2+n*round); err != nil {
				return err
			}
		}
		fmt.Fprintf(out, "rank %d: %d sums of %d numbers in %v\n", rank, rounds, count, time.Since(began))
		return nil
	}), vector.Close())
}

// ring calls f with connections from the process before and to the next one.
func ring(ctx context.Context, own, after string, f func(ctx context.Context, prev, next *rdma.Conn) error) error {
	l, err := rdma.Listen(own, nil)
	if err != nil {
		return err
	}
	cl := rdma.NewClient[struct{}](after, nil) // connects when the next process listens
	err = cl.Do(ctx, func(ctx context.Context, next *rdma.Conn, _ struct{}) error {
		prev, err := l.Accept(ctx)
		if err != nil {
			return err
		}
		return errors.Join(f(ctx, prev, next), prev.Close())
	})
	return errors.Join(err, cl.Close(), l.Close())
}

// allReduce adds up the vectors of n processes. In the first n-1 steps, a process adds the part that it gets and sends
// it on, so that it has the sum of one part in the end. In the other n-1 steps, the sums go around.
func allReduce(ctx context.Context, prev, next *rdma.Conn, vector *rdma.Region, rank, n int) error {
	part := func(i int) (off, size int) {
		numbers := len(vector.Bytes()) / 4
		i = (i%n + n) % n
		off = i * numbers / n
		return 4 * off, 4 * ((i+1)*numbers/n - off)
	}
	for step := range 2 * (n - 1) {
		if step == n-1 { // parts that the next process may still be reading are replaced from now on
			if err := next.Flush(ctx); err != nil {
				return err
			}
		}
		off, size := part(rank - step)
		b, err := next.BufferOf(vector, off, size)
		if err == nil {
			err = next.SendBuffer(ctx, b)
		}
		if err != nil {
			return err
		}
		m, err := prev.Recv(ctx)
		if err != nil {
			return err
		}
		off, size = part(rank - step - 1)
		switch to := vector.Bytes()[off : off+size]; {
		case m.Len() != size:
			err = fmt.Errorf("a part of %d bytes, not %d: do all processes have the same addresses?", m.Len(), size)
		case step < n-1:
			add(to, m.Bytes())
		default:
			copy(to, m.Bytes())
		}
		m.Release()
		if err != nil {
			return err
		}
	}
	return next.Flush(ctx)
}

func number(b []byte) float32 { return math.Float32frombits(binary.LittleEndian.Uint32(b)) }

func set(b []byte, x float32) { binary.LittleEndian.PutUint32(b, math.Float32bits(x)) }

func add(to, b []byte) {
	for i := 0; i < len(b); i += 4 {
		set(to[i:], number(to[i:])+number(b[i:]))
	}
}

func fill(b []byte, x float32) {
	for i := 0; i < len(b); i += 4 {
		set(b[i:], x+float32(i%1000))
	}
}

// check compares b with n vectors whose first numbers have that sum.
func check(b []byte, n, sum int) error {
	for i := 0; i < len(b); i += 4 {
		if want := float32(sum + n*(i%1000)); number(b[i:]) != want {
			return fmt.Errorf("number %d is %v, not %v", i/4, number(b[i:]), want)
		}
	}
	return nil
}
