// Objects measures how fast MRs, CQs and QPs are made and destroyed: so many of
// each, one after the other. The figures are microseconds for each object.
//
//	objects -d rxe0 -n 1000
//
// testbed/speed/testdata/objects.c does the same in C.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"time"

	_ "github.com/goverbs/goverbs/provider/all"
	"github.com/goverbs/goverbs/uverbs"
)

// size is that of each MR.
const size = 4096

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "objects:", err)
		os.Exit(1)
	}
}

func run(args []string) (err error) {
	flags := flag.NewFlagSet("objects", flag.ContinueOnError)
	device := flags.String("d", "mlx5_0", "device")
	count := flags.Int("n", 1000, "how many of each")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *count < 1 || flags.NArg() > 0 {
		return errors.New("want -n of at least 1 and no argument")
	}
	ctx, err := uverbs.Open(*device)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, ctx.Close()) }()
	pd, err := ctx.AllocPD()
	if err != nil {
		return err
	}
	cq, err := ctx.CreateCQ(uverbs.CQConfig{Entries: 63})
	if err != nil {
		return err
	}
	memory := make([]byte, size)
	return errors.Join(
		measure("MR", *count, func() (*uverbs.MR, error) { return pd.RegMR(memory, uverbs.LocalWrite) }),
		measure("CQ", *count, func() (*uverbs.CQ, error) { return ctx.CreateCQ(uverbs.CQConfig{Entries: 63}) }),
		measure("QP", *count, func() (*uverbs.QP, error) {
			return pd.CreateQP(uverbs.QPConfig{Type: uverbs.RC, SendCQ: cq, MaxSendWR: 16, MaxRecvWR: 16})
		}))
}

// measure makes and destroys count objects.
func measure[T interface{ Close() error }](kind string, count int, create func() (T, error)) error {
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
	_, err := fmt.Printf("%s.create %.2f\n%s.destroy %.2f\n", kind, us(made.Sub(began)), kind, us(time.Since(made)))
	return err
}
