package results

import (
	"math"
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
	page := both(r)
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
	if strings.Contains(page, Fabric) {
		t.Errorf("libfabric was not measured, and is in\n%s", page)
	}
}

// Programs with libfabric are beside the others where they were measured.
func TestFabric(t *testing.T) {
	r := &Run{Places: []Place{{Name: Messages}, {Name: MessageInstructions}}}
	for figure, values := range map[string]map[string]float64{
		"small.p50":   {Go: 40, CM: 30, C: 20, Fabric: 25, FabricRDM: 50},
		"churned.p50": {Go: 80, CM: 30, C: 20, Fabric: 75, FabricRDM: 50},
		"read.p50":    {Go: 40, CM: 30, C: 20, Fabric: 32},
		"write.p50":   {Go: 40, CM: 30, C: 20},
	} {
		for who, v := range values {
			r.Add(Series{Place: Messages, Test: MessagesTest, Figure: figure, At: 64, Unit: "us"}, who, v)
		}
	}
	page := both(r)
	for _, want := range []string{
		"#### Messages, READ and WRITE, beside libfabric, µs\n",
		"| operation |  | rdma | libfabric | libfabric RDM | rdma to libfabric | rdma to libfabric RDM | libfabric to C |",
		"| message of 64 bytes and its echo | p50 | 40.0 | 25.0 | 50.0 | 1.60 | 0.80 | 1.25 |",
		"| READ of 64 bytes | p50 | 40.0 | 32.0 |  | 1.25 |  | 1.60 |",
		"| percentile | rdma | cm | C | libfabric | libfabric RDM |",
		"| p50 | 2.00 | 1.00 | 1.00 | 3.00 | 1.00 |",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("no %q in\n%s", want, page)
		}
	}
	if n := strings.Count(page, "WRITE of 64 bytes"); n != 1 {
		t.Errorf("%d rows of a figure that libfabric does not have, in\n%s", n, page)
	}
	charts := r.messageCharts(Messages)
	if len(charts) != 1 || len(charts[0].Bars) != 4 || charts[0].Bars[3].Name != Fabric {
		t.Errorf("charts %v", charts)
	}
}

// Cgo and TCP are beside the others where they were measured, and in a sentence each.
func TestBesideCgo(t *testing.T) {
	r := &Run{Places: []Place{{Name: "instructions"}, {Name: MessageInstructions}}}
	r.Add(Series{Place: "instructions", Test: "requests", Figure: "write", At: 1}, Go, 100)
	r.Add(Series{Place: "instructions", Test: "requests", Figure: "write", At: 1}, Cgo, 500)
	r.Add(Series{Place: "instructions", Test: "requests", Figure: "recv", At: 1}, Go, 100)
	r.Add(Series{Place: "instructions", Test: "requests", Figure: "recv", At: 1}, Cgo, 250)
	for figure, values := range map[string]map[string]float64{
		"read":    {Go: 4000, CM: 3000, C: 2000, Cgo: 2500},
		"small":   {Go: 8000, CM: 7000, C: 8000, Cgo: 10000, TCP: 16000},
		"connect": {Go: 9000, CM: 8000, C: 3000, TCP: 1000},
		"many":    {Go: 4000, CM: 3000, C: 2000},
	} {
		for who, v := range values {
			r.Add(Series{Place: MessageInstructions, Test: MessagesTest, Figure: figure, At: 64, Unit: "ns"}, who, v)
		}
	}
	page := both(r)
	for _, want := range []string{
		"- goverbs takes **fewer than cgo** for posting and polling (0.30; 0.20 to 0.40), a message of 64 bytes and its" +
			" echo (0.80), and **more than cgo** for READ and WRITE with their waits (1.60).\n",
		"- goverbs takes **fewer than TCP** for a message of 64 bytes and its echo (0.50), and **more than TCP** for" +
			" connecting and closing (9.00).\n",
		"#### Messages, READ and WRITE, beside cgo and TCP, instructions\n",
		"| operation |  | rdma | cgo | TCP | rdma to cgo | rdma to TCP | cm to cgo |",
		"| READ of 64 bytes |  | 4000 | 2500 |  | 1.60 |  | 1.20 |",
		"| message of 64 bytes and its echo |  | 8000 | 10000 | 16000 | 0.80 | 0.50 | 0.70 |",
		"| connect | instructions on a software ConnectX | 3.00 | 0 of 1 | 3.00: connect and close both ends |",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("no %q in\n%s", want, page)
		}
	}
	if n := strings.Count(page, "| message of 64 bytes and its echo, on 100 connections at once |"); n != 1 {
		t.Errorf("%d rows of a figure that neither cgo nor TCP has, in\n%s", n, page)
	}
	charts := r.messageCharts(MessageInstructions)
	if len(charts) != 1 || len(charts[0].Bars) != 5 || charts[0].Bars[3].Name != Cgo || charts[0].Bars[4].Name != TCP {
		t.Errorf("charts %v", charts)
	}
}

// The chart shows the 99th percentile beside the median, which may say the opposite.
func TestMessageTails(t *testing.T) {
	r := &Run{Places: []Place{{Name: Messages}, {Name: MessageInstructions}}}
	add := func(place, figure, unit string, goes, c float64) {
		key := Series{Place: place, Test: MessagesTest, Figure: figure, At: 64, Unit: unit}
		r.Add(key, Go, goes)
		r.Add(key, C, c)
	}
	add(Messages, "read.p50", "us", 3, 2)
	add(Messages, "churned.p50", "us", 4, 5)
	add(Messages, "churned.p99", "us", 900, 50)
	add(MessageInstructions, "read", "ns", 3, 2)
	c := r.messageCharts(Messages)[0]
	if len(c.Rows) != 2 || !c.LogX || !strings.Contains(c.Subtitle, "p99") {
		t.Fatalf("the chart is %+v", c)
	}
	for i, want := range []float64{900, 50} {
		if b := c.Bars[i]; !math.IsNaN(b.Tails[0]) || b.Tails[1] != want {
			t.Errorf("the tails of %s are %v", b.Name, b.Tails)
		}
	}
	if c := r.messageCharts(MessageInstructions)[0]; !c.LogX || len(c.Bars[0].Tails) != 0 {
		t.Errorf("instructions have no tail: %+v", c)
	}
}

// Charts of latencies by size show the 99th percentile of every program.
func TestLatencyTails(t *testing.T) {
	r := &Run{Places: []Place{{Name: "rxe"}}}
	for _, at := range []int{2, 64} {
		for figure, v := range map[string]float64{"typical": 1, "99 %": 7} {
			key := Series{Place: "rxe", Test: "read_lat", Figure: figure, At: at, Unit: "us"}
			r.Add(key, Go, v)
			r.Add(key, C, v+1)
		}
	}
	charts := r.sizes("rxe")
	if len(charts) != 1 || len(charts[0].Lines) != 4 {
		t.Fatalf("charts %+v", charts)
	}
	for i, l := range charts[0].Lines {
		if want := []float64{1, 2, 7, 8}[i]; l.Y[0] != want || l.Tail != (i > 1) {
			t.Errorf("line %d is %+v", i, l)
		}
	}
}
