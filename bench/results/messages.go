package results

import "fmt"

// operations describes the figures of MessagesTest, in the order of the tables.
var operations = []struct{ figure, what string }{
	{"read", "READ of 64 bytes"},
	{"write", "WRITE of 64 bytes"},
	{"small", "message of 64 bytes and its echo"},
	{"large", "message of 1 MiB into a receive of 1 MiB, and an echo of 64 bytes"},
	{"offered", "message of 1 MiB that rdma offers and reads, and an echo of 64 bytes"},
	{"churned", "message of 64 bytes and its echo, beside a busy garbage collector"},
}

// percentiles are the ends of the names of times.
var percentiles = []struct{ suffix, what string }{
	{"", ""}, {".p50", "p50"}, {".p99", "p99"}, {".p99.9", "p99.9"},
}

const aboutMessages = `Both ends are in one process, and wait for completions asleep. rdma is
[package rdma](../rdma), cm the same work written by hand on [package cm](../cm), without flow control. C is that on the
synchronous calls of librdmacm, as in rping (` + "`testbed/speed/testdata/messages.c`" + `). rdma offers a
message that is longer than EagerSize, and the peer reads it; cm and C receive it like any other.`

// messages prints the costs of messages and one-sided access.
func (p *page) messages(place string) {
	var rows [][]string
	unitOf := ""
	for _, o := range operations {
		for _, q := range percentiles {
			for _, s := range p.run.Of(place, MessagesTest, o.figure+q.suffix) {
				unitOf = s.Unit
				rows = append(rows, []string{o.what, q.what, number(s, Go), number(s, CM), number(s, C),
					s.ratioOf(Go, CM), s.ratio(), s.ratioOf(CM, C)})
			}
		}
	}
	if len(rows) == 0 {
		return
	}
	p.printf("#### Messages, READ and WRITE, %s\n\n", unit(place, unitOf))
	p.printf("%s", aboutMessages)
	if unitOf == "us" {
		p.printf("\nFigures are quantiles of single times.")
	} else {
		p.printf("\nFigures are the process's instructions, with its system calls.")
	}
	p.printf("\n\n")
	p.rows([]string{"operation", "", "rdma", "cm", C, "rdma to cm", "rdma to C", "cm to C"}, rows)
}

// churned prints how much longer messages take beside a churned heap.
func (p *page) churned(place string) {
	var rows [][]string
	for _, q := range percentiles {
		quiet, churned := p.run.Of(place, MessagesTest, "small"+q.suffix), p.run.Of(place, MessagesTest, "churned"+q.suffix)
		if len(quiet) != 1 || len(churned) != 1 {
			continue
		}
		row := []string{q.what}
		for _, who := range []string{Go, CM, C} {
			both := Series{Values: map[string][]float64{"churned": churned[0].Values[who], "quiet": quiet[0].Values[who]}}
			row = append(row, both.ratioOf("churned", "quiet"))
		}
		rows = append(rows, row)
	}
	if len(rows) == 0 {
		return
	}
	p.printf("#### A message and its echo beside a busy garbage collector, divided by the time without\n\n")
	p.printf("Another goroutine (in C, another thread) replaces 128 of 1,048,576 blocks of 64 bytes every\n")
	p.printf("millisecond. Go's garbage collector then runs again and again (GOGC=1).\n\n")
	p.rows([]string{"percentile", "rdma", "cm", C}, rows)
}

// ratioOf formats the ratio of two programs with its spread.
func (s Series) ratioOf(a, b string) string {
	r, err := s.Ratio(a, b)
	if err != nil {
		return ""
	}
	if r.Rounds == 1 {
		return fmt.Sprintf("%.2f", r.Median)
	}
	return fmt.Sprintf("%.2f (%.2f–%.2f)", r.Median, r.Low, r.High)
}
