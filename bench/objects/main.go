// Objects measures the creation and destruction of MRs, CQs and QPs: it creates n
// of each, then closes them. The figures are microseconds for each object. One of
// each is created and closed before, so that the pages of the program are mapped.
//
//	objects -d rxe0 -n 1000
//
// All MRs register the same memory, of -size bytes, in huge pages unless -small is
// given. testbed/speed/testdata/objects.c does the same in C, with 4 KiB.
package main

import (
	"errors"
	"flag"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/bench/kit"
	"github.com/goverbs/goverbs/uverbs"
)

func main() { kit.Main("objects", run) }

func run(args []string) error {
	flags := flag.NewFlagSet("objects", flag.ContinueOnError)
	device := flags.String("d", "mlx5_0", "device")
	count := flags.Int("n", 1000, "number of objects of each kind")
	size := flags.Int("size", 4096, "bytes of an MR")
	small := flags.Bool("small", false, "no huge pages")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *count < 1 || *size < 1 || flags.NArg() > 0 {
		return errors.New("-n and -size must be at least 1, and there must be no argument")
	}
	return kit.OnDevice(*device, func(ctx *uverbs.Context) error { return measureAll(ctx, *count, *size, *small) })
}

func measureAll(ctx *uverbs.Context, count, size int, small bool) error {
	pd, err := ctx.AllocPD()
	if err != nil {
		return err
	}
	cq, err := ctx.CreateCQ(uverbs.CQConfig{Entries: 63, NoEvents: true})
	if err != nil {
		return err
	}
	memory, err := pages(size, small)
	if err != nil {
		return err
	}
	return errors.Join(
		measure("MR", count, func() (*uverbs.MR, error) { return pd.RegMR(memory, uverbs.LocalWrite) }),
		measure("CQ", count, func() (*uverbs.CQ, error) {
			return ctx.CreateCQ(uverbs.CQConfig{Entries: 63, NoEvents: true})
		}),
		measure("QP", count, func() (*uverbs.QP, error) {
			return pd.CreateQP(uverbs.QPConfig{Type: uverbs.RC, SendCQ: cq, MaxSendWR: 16, MaxRecvWR: 16})
		}))
}

// pages returns size bytes of memory that has been written to. Unless small is set,
// it asks the kernel for huge pages.
func pages(size int, small bool) ([]byte, error) {
	const huge = 2 << 20
	room, err := unix.Mmap(-1, 0, size+huge, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return nil, err
	}
	advice := unix.MADV_HUGEPAGE
	if small {
		advice = unix.MADV_NOHUGEPAGE
	}
	if err := unix.Madvise(room, advice); err != nil {
		return nil, fmt.Errorf("madvise: %w", err)
	}
	memory := room[align(room, huge):][:size]
	clear(memory)
	return memory, nil
}

// measure creates and closes count objects and prints the times.
func measure[T interface{ Close() error }](kind string, count int, create func() (T, error)) error {
	first, err := create()
	if err != nil {
		return fmt.Errorf("%s: %w", kind, err)
	}
	if err := first.Close(); err != nil {
		return err
	}
	all := make([]T, 0, count)
	began := time.Now()
	for range count {
		o, err := create()
		if err != nil {
			return fmt.Errorf("%s %d: %w", kind, len(all)+1, err)
		}
		all = append(all, o)
	}
	made := time.Now()
	for _, o := range all {
		if err := o.Close(); err != nil {
			return err
		}
	}
	us := func(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1000 / float64(count) }
	_, err = fmt.Printf("%s.create %.2f\n%s.destroy %.2f\n", kind, us(made.Sub(began)), kind, us(time.Since(made)))
	return err
}
