package main

import (
	"fmt"
	"os"
	"runtime"

	"github.com/goverbs/goverbs/bench/procmem"
	"github.com/goverbs/goverbs/uverbs"
)

// measureMemory prints the memory that a CQ and a QP take: the difference between
// count of them and one, for each.
func measureMemory(ctx *uverbs.Context, count int) error {
	pd, err := ctx.AllocPD()
	if err != nil {
		return err
	}
	var cqs []*uverbs.CQ
	if err := eachOf("CQ", count, func() error {
		cq, err := ctx.CreateCQ(uverbs.CQConfig{Entries: 63, NoEvents: true})
		cqs = append(cqs, cq)
		return err
	}); err != nil {
		return err
	}
	var qps []*uverbs.QP
	err = eachOf("QP", count, func() error {
		q, err := pd.CreateQP(uverbs.QPConfig{Type: uverbs.RC, SendCQ: cqs[0], MaxSendWR: 16, MaxRecvWR: 16, MaxInline: 32})
		qps = append(qps, q)
		return err
	})
	runtime.KeepAlive(qps)
	return err
}

// eachOf creates count objects and prints the memory that each takes after the
// first.
func eachOf(kind string, count int, create func() error) error {
	var first, last procmem.Usage
	for i := range count {
		if err := create(); err != nil {
			return fmt.Errorf("%s %d: %w", kind, i+1, err)
		}
		if i == 0 || i == count-1 {
			u, err := procmem.Now()
			if err != nil {
				return err
			}
			if first, last = last, u; i == 0 {
				first = u
			}
		}
	}
	return procmem.Print(os.Stdout, kind, count-1, first, last)
}
