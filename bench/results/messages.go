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
	{"many", "message of 64 bytes and its echo, on 100 connections at once"},
	{connect, "connect and close both ends"},
}

const connect = "connect"

const aboutCgo = `cgo is a Go program that calls librdmacm: each post and each wait is a call of C, with the functions
of messages.c (` + "`bench/cgo/messages`" + `), and a wait blocks its thread. TCP is package net. Both ends of its
connections have the device's address, so that its packets stay in the kernel: no adapter does its work, but none of
it is emulated.`

const aboutFabric = `The C program uses libfabric with its provider verbs
(` + "`testbed/speed/testdata/fabric.c`" + `) and sleeps in fi_cq_sread. libfabric has connected endpoints
(FI_EP_MSG), which inject messages of 64 bytes. libfabric RDM has endpoints of ofi_rxm (FI_EP_RDM), which copy short
messages through its buffers and read long ones from the peer.`

// percentiles are the ends of the names of times.
var percentiles = []struct{ suffix, what string }{
	{"", ""}, {".p50", "p50"}, {".p99", "p99"}, {".p99.9", "p99.9"},
}

const aboutMessages = `Both ends are in one process, and wait for completions asleep. rdma is
[package rdma](%[1]s../rdma), cm the same work written by hand on [package cm](%[1]s../cm), without flow control. C is
that on the synchronous calls of librdmacm, as in rping (` + "`testbed/speed/testdata/messages.c`" + `). rdma offers a
message that is longer than EagerSize, and the peer reads it; cm and C receive it like any other. Echoes on 100
connections at once are divided by 100: a message is sent on each before the first echo is received, and each server's
end waits in a goroutine, in C a thread. To connect includes memory for messages: 192 KiB at each end of rdma, and two
pages of cm and C.`

const ofMessages = "Messages, READ and WRITE"

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
	p.printf("#### %s, %s\n\n", ofMessages, unit(place, unitOf))
	p.printf(aboutMessages, p.above)
	if unitOf == "us" {
		p.printf("\nFigures are quantiles of single times.")
	} else {
		p.printf("\nFigures are the process's instructions, with its system calls.")
	}
	p.printf("\n\n")
	p.rows([]string{"operation", "", "rdma", "cm", C, "rdma to cm", "rdma to C", "cm to C"}, rows)
}

// A besides describes a table of the same costs beside those of two others. Its last column is the ratio of a pair.
type besides struct {
	title, about string
	others, pair [2]string
}

var (
	besideCgo    = besides{"cgo and TCP", aboutCgo, [2]string{Cgo, TCP}, [2]string{CM, Cgo}}
	besideFabric = besides{"libfabric", aboutFabric, [2]string{Fabric, FabricRDM}, [2]string{Fabric, C}}
)

// beside prints such a table, if the others were measured.
func (p *page) beside(place string, t besides) {
	a, b := t.others[0], t.others[1]
	var rows [][]string
	unitOf := ""
	for _, o := range operations {
		for _, q := range percentiles {
			for _, s := range p.run.Of(place, MessagesTest, o.figure+q.suffix) {
				if len(s.Values[a])+len(s.Values[b]) == 0 {
					continue
				}
				unitOf = s.Unit
				rows = append(rows, []string{o.what, q.what, number(s, Go), number(s, a), number(s, b), s.ratioOf(Go, a),
					s.ratioOf(Go, b), s.ratioOf(t.pair[0], t.pair[1])})
			}
		}
	}
	if len(rows) == 0 {
		return
	}
	p.printf("#### %s, beside %s, %s\n\n%s\n\n", ofMessages, t.title, unit(place, unitOf), t.about)
	p.rows([]string{"operation", "", "rdma", a, b, "rdma to " + a, "rdma to " + b, t.pair[0] + " to " + t.pair[1]}, rows)
}

// churned prints how much longer messages take beside a churned heap.
func (p *page) churned(place string) {
	var rows [][]string
	whose, head := []string{Go, CM, C}, []string{"percentile", "rdma", "cm", C}
	for _, who := range []string{Cgo, TCP, Fabric, FabricRDM} {
		for _, s := range p.run.Of(place, MessagesTest, "churned.p50") {
			if len(s.Values[who]) > 0 {
				whose, head = append(whose, who), append(head, who)
			}
		}
	}
	for _, q := range percentiles {
		quiet, churned := p.run.Of(place, MessagesTest, "small"+q.suffix), p.run.Of(place, MessagesTest, "churned"+q.suffix)
		if len(quiet) != 1 || len(churned) != 1 {
			continue
		}
		row := []string{q.what}
		for _, who := range whose {
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
	p.rows(head, rows)
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
