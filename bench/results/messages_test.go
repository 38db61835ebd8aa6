package results

import (
	"strings"
	"testing"
)

func TestMessages(t *testing.T) {
	r := &Run{Places: []Place{{Name: Messages}, {Name: MessageInstructions}}}
	add := func(place, figure, unit string, goes, cm, c float64) {
		for range 2 {
			key := Series{Place: place, Test: MessagesTest, Figure: figure, At: 64, Unit: unit}
			r.Add(key, Go, goes)
			r.Add(key, CM, cm)
			r.Add(key, C, c)
		}
	}
	add(Messages, "churned.p99", "us", 60, 30, 10)
	add(Messages, "small.p99", "us", 20, 20, 20)
	add(MessageInstructions, "offered", "ns", 3000, 2000, 1000)
	page := r.Page()
	for _, want := range []string{
		"#### Messages, READ and WRITE, µs\n",
		"#### Messages, READ and WRITE, instructions\n",
		"| message of 64 bytes and its echo | p99 | 20.0 | 20.0 | 20.0 | 1.00 (1.00–1.00) | 1.00 (1.00–1.00) |",
		"| 3000 | 2000 | 1000 | 1.50 (1.50–1.50) | **3.00 (3.00–3.00)** | 2.00 (2.00–2.00) |",
		"| p99 | 3.00 (3.00–3.00) | 1.50 (1.50–1.50) | 0.50 (0.50–0.50) |",
		"| messages, READ, WRITE | time on soft-RoCE | 3.50 | 1 of 2 | 6.00: message of 64 bytes and its echo, " +
			"beside a busy garbage collector, p99 |",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("no %q in\n%s", want, page)
		}
	}
}
