package main

import (
	"bytes"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"

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
	var first, last usage
	for i := range count {
		if err := create(); err != nil {
			return fmt.Errorf("%s %d: %w", kind, i+1, err)
		}
		if i == 0 || i == count-1 {
			u, err := used()
			if err != nil {
				return err
			}
			if first, last = last, u; i == 0 {
				first = u
			}
		}
	}
	n := float64(max(count-1, 1))
	fmt.Printf("%s.rss %.0f\n%s.mapped %.0f\n%s.mappings %.3f\n", kind, (last.rss-first.rss)/n,
		kind, (last.mapped-first.mapped)/n, kind, (last.mappings-first.mappings)/n)
	return nil
}

// usage is the memory of the process, in bytes, and the number of its mappings.
type usage struct{ rss, mapped, mappings float64 }

func used() (u usage, err error) {
	debug.FreeOSMemory() // do not count garbage
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return u, err
	}
	for line := range strings.Lines(string(status)) {
		f := strings.Fields(line)
		for name, to := range map[string]*float64{"VmRSS:": &u.rss, "VmSize:": &u.mapped} {
			if f[0] == name {
				kib, err := strconv.ParseFloat(f[1], 64)
				if err != nil {
					return u, err
				}
				*to = kib * 1024
			}
		}
	}
	maps, err := os.ReadFile("/proc/self/maps")
	u.mappings = float64(bytes.Count(maps, []byte("\n")))
	return u, err
}
