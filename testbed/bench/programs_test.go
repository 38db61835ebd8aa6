package main

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/goverbs/goverbs/bench/results"
)

// bothPrograms returns a machine with a fake host. It returns the output ours for our
// program, /go, and inC for the C program, and records the order in which they run. COUNT
// in an output is the program's option -c.
func bothPrograms(ours, inC string) (m *machine, order *[]string) {
	order = new([]string)
	h := &fake{func(args []string) (string, error) {
		line := strings.Join(args, " ")
		count := ""
		if found := regexp.MustCompile(`-c (\d+)`).FindStringSubmatch(line); found != nil {
			count = found[1]
		}
		switch {
		case strings.Contains(line, "rdma resource"), strings.Contains(line, " -b 10.9.0.1"): // a wait, and a server
			return "", nil
		case strings.Contains(line, "/go"):
			*order = append(*order, results.Go)
			return strings.ReplaceAll(ours, "COUNT", count), nil
		}
		*order = append(*order, results.C)
		return strings.ReplaceAll(inC, "COUNT", count), nil
	}}
	there := [2]string{"/go", "/go"}
	return &machine{server: h, client: h, address: "10.9.0.1", device: "rxe0", port: firstPort,
		programs: map[string][2]string{"bench/objects": there, "bench/cmtime": there, "bench/wrcost": there,
			"bench/waits": there, "bench/parallel": there, "bench/peak": {"/peak", "/peak"}}}, order
}

// values returns figures of each program in two rounds.
func values(ours, inC float64) map[string][]float64 {
	return map[string][]float64{results.Go: {ours, ours}, results.C: {inC, inC}}
}

// Figures are assigned to the right program, and the order changes.
func TestWhoIsWho(t *testing.T) {
	turns := []string{results.Go, results.C, results.C, results.Go}
	m, order := bothPrograms("MR.create 3.5\n", "MR.create 7\n")
	b := &bench{rounds: 2, tests: regexp.MustCompile("")}
	if err := b.objects(t.Context(), m, "rxe", 100); err != nil || !slices.Equal(*order, turns) {
		t.Errorf("objects: %v, %v", err, *order)
	}
	want := []results.Series{
		{Place: "rxe", Test: "objects", Figure: "MR.create", At: 100, Unit: "us", Values: values(3.5, 7)},
	}

	// Of all connections together. Steps that C does not report are not compared.
	m, order = bothPrograms("qp_conn 500\nstep total(us) us/conn\n"+
		"full connect          10       5000\nbind addr       1  600\n",
		"qp_conn 500\nfull connect          20      10000\nbind addr       0  0\nwithout QPs\nfull connect   1  1\n")
	if err := b.cmtime(t.Context(), m, "rxe"); err != nil || !slices.Equal(*order, turns) {
		t.Errorf("cmtime: %v, %v", err, *order)
	}
	want = append(want, results.Series{Place: "rxe", Test: "cmtime", Figure: "full connect", At: 500, Unit: "us",
		Values: values(10, 20)})

	// The memory of a connection is the difference of 10,000 to one.
	m, order = bothPrograms("qp_conn 1\npeak COUNT000\n", "qp_conn 1\npeak COUNT00\n")
	if err := b.connections(t.Context(), m, "rxe"); err != nil || !slices.Equal(*order, []string{results.Go, results.Go,
		results.C, results.C, results.C, results.C, results.Go, results.Go}) {
		t.Errorf("connections: %v, %v", err, *order)
	}
	want = append(want, results.Series{Place: "rxe", Test: results.Memory, Figure: "connection.rss", At: 10000,
		Unit: "bytes", Values: values(1000, 100)})

	m, order = bothPrograms("wait 38.5\n", "wait 35\n")
	if err := b.waits(t.Context(), m, "rxe", 10000); err != nil || !slices.Equal(*order, turns) {
		t.Errorf("waits: %v, %v", err, *order)
	}
	want = append(want, results.Series{Place: "rxe", Test: results.IdleQueues, Figure: "wait", At: 10000, Unit: "us",
		Values: values(38.5, 35)})

	m, order = bothPrograms("post 270\n", "post 310\n")
	if err := b.parallel(t.Context(), m, "rxe", 64); err != nil || !slices.Equal(*order, turns) {
		t.Errorf("parallel: %v, %v", err, *order)
	}
	want = append(want, results.Series{Place: "rxe", Test: results.ParallelPosts, Figure: "post", At: 64, Unit: "ns",
		Values: values(270, 310)})
	if d := cmp.Diff(want, b.run.Series); d != "" {
		t.Error(d)
	}
}

// Figures of single runs are assigned to the right program too. The C program has no
// builder; its list is compared instead.
func TestWhoseRequests(t *testing.T) {
	one := func(ours, inC float64) map[string][]float64 {
		return map[string][]float64{results.Go: {ours}, results.C: {inC}}
	}
	m, _ := bothPrograms("write 200\nlist32 80\nbuilder32 90\n", "write 300\nlist32 160\n")
	b := &bench{rounds: 9}
	b.requests(t.Context(), m, "instructions", []int{1})
	m, _ = bothPrograms("ud 200\nudlist32inline 80\nudbuilder32inline 90\n", "ud 300\nudlist32inline 160\nloop 9\n")
	if err := b.otherRequests(t.Context(), m, "instructions"); err != nil {
		t.Error(err)
	}
	m, _ = bothPrograms("CQ.rss 1\nCQ.mapped 2\nQP.rss 3\nQP.mapped 4\n", "CQ.rss 5\nCQ.mapped 6\nQP.rss 7\nQP.mapped 8\n")
	if err := b.memory(t.Context(), m, "instructions"); err != nil || len(b.run.Failures) != 0 {
		t.Errorf("%v, %v", err, b.run.Failures)
	}
	got := map[string]map[string][]float64{}
	for _, s := range b.run.Series {
		got[s.Test+" "+s.Figure+" "+s.Unit] = s.Values
	}
	want := map[string]map[string][]float64{
		"requests write instructions":                   one(200, 300),
		"requests list32 instructions":                  one(80, 160),
		"requests builder32 instructions":               one(90, 160),
		"other requests ud instructions":                one(200, 300),
		"other requests udlist32inline instructions":    one(80, 160),
		"other requests udbuilder32inline instructions": one(90, 160),
		"other requests loop instructions":              {results.C: {9}},
		"memory CQ.rss bytes":                           one(1, 5),
		"memory CQ.mapped bytes":                        one(2, 6),
		"memory QP.rss bytes":                           one(3, 7),
		"memory QP.mapped bytes":                        one(4, 8),
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
}

// TestOtherRequests checks that the Go and the C program measure the same kinds of other requests, and that the
// published figures, which package results names, are of these kinds.
func TestOtherRequests(t *testing.T) {
	kindsIn := func(file, pattern string) map[string]bool {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		kinds := map[string]bool{}
		for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(string(b), -1) {
			kinds[strings.TrimSuffix(m[1], "inline")] = true
		}
		return kinds
	}
	inC := kindsIn(filepath.Join("..", source("typecost.c")), `\{ "(\w+)" \}`)
	ours := kindsIn(filepath.Join("..", "..", "bench", "wrcost", "types.go"), `(?:sized\(|kind\{name: )"(\w+)"`)
	delete(ours, "dc") // measured alone
	run, err := results.Read(filepath.Join("..", published))
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range run.Of("instructions", results.OtherRequests, "") {
		kind := regexp.MustCompile("((list|builder)32)?(inline)?$").ReplaceAllString(s.Figure, "")
		if kind != "loop" && !ours[kind] { // the loop is part of all kinds
			t.Errorf("no program measures the published figure %s", s.Figure)
		}
	}
	if len(inC) == 0 || !maps.Equal(ours, inC) {
		t.Errorf("Go measures %v, C measures %v", ours, inC)
	}
}
