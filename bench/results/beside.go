package results

import (
	"fmt"
	"slices"
)

// overview prints the table that says what goverbs is beside cgo bindings and TCP, which the README has too. It prints
// nothing if the run lacks a figure.
func (p *page) overview() {
	rows := [][]string{
		{"build", "gcc and rdma-core's headers; libibverbs, librdmacm and the adapter's library to run",
			"`CGO_ENABLED=0 go build`: one static file, also cross-compiled", "nothing but Go"},
		{"post or poll, instructions", p.run.requestRange(Cgo), p.run.requestRange(Go), "a system call"},
		{"message of 64 bytes and its echo, instructions", p.run.instructions(Cgo, "small"), p.run.instructions(Go, "small"),
			p.run.instructions(TCP, "small")},
		{"message of 1 MiB and an echo, instructions", p.run.instructions(Cgo, "offered"), p.run.instructions(Go, "offered"),
			p.run.instructions(TCP, "offered")},
		{"wait", "a thread in each, which no context ends", "a goroutine in the runtime's poller, ended by its context",
			"the same as goverbs"},
		{"tail: p99 of the echo; the same beside a busy garbage collector", p.run.tail(Cgo), p.run.tail(Go), p.run.tail(TCP)},
		{"tested on", "adapters in production, by the users of rdma-core",
			"Linux 5.10 to 7.2, soft-RoCE and a software ConnectX; **no adapter yet**", "all networks"},
	}
	if slices.ContainsFunc(rows, func(row []string) bool { return slices.Contains(row, "") }) {
		return
	}
	p.rows([]string{"", "cgo bindings", "goverbs", "TCP"}, rows)
}

// requestRange returns the least and the highest cost of a request in a call of one, and of each of 32.
func (r *Run) requestRange(who string) string {
	var one, each []float64
	for _, s := range r.Of(counted, "requests", "") {
		if s.At != 1 || len(s.Values[Go]) == 0 || len(s.Values[Cgo]) == 0 {
			continue
		}
		v := Quantile(s.Values[who], 0.5)
		switch s.Figure {
		case "write", "inline", "recv", "poll1", "empty":
			one = append(one, v)
		default:
			each = append(each, v)
		}
	}
	if len(one) == 0 || len(each) == 0 {
		return ""
	}
	return fmt.Sprintf("%.0f to %.0f; each of 32: %.0f to %.0f", slices.Min(one), slices.Max(one), slices.Min(each),
		slices.Max(each))
}

// instructions returns the cost of an operation of package rdma, and of what is beside it.
func (r *Run) instructions(who, figure string) string {
	for _, s := range r.Of(MessageInstructions, MessagesTest, figure) {
		if len(s.Values[who]) > 0 {
			return thousands(Quantile(s.Values[who], 0.5))
		}
	}
	return ""
}

// tail returns the 99th percentiles of a message and its echo, without and beside a busy garbage collector.
func (r *Run) tail(who string) string {
	var values []any
	for _, figure := range []string{"small.p99", "churned.p99"} {
		for _, s := range r.Of(Messages, MessagesTest, figure) {
			if len(s.Values[who]) > 0 {
				values = append(values, Quantile(s.Values[who], 0.5)/1000)
			}
		}
	}
	if len(values) != 2 {
		return ""
	}
	return fmt.Sprintf("%.1f ms; %.1f ms", values...)
}

// thousands formats a number with commas.
func thousands(v float64) string {
	text := fmt.Sprintf("%.0f", v)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}
