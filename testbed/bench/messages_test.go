package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/goverbs/goverbs/bench/results"
)

// messagesIn runs two rounds on a fake host, on which output has each program's output. It returns what was measured,
// and the order in which the programs ran.
func messagesIn(t *testing.T, commands map[string][]string, output map[string]string) (results.Run, []string, error) {
	t.Helper()
	var order []string
	h := &fake{func(args []string) (string, error) {
		for who, command := range commands {
			if strings.HasSuffix(strings.Join(args, " "), " "+strings.Join(command, " ")) {
				order = append(order, who)
				return output[who], nil
			}
		}
		t.Errorf("unexpected %q", args)
		return "", nil
	}}
	m := &machine{server: h, client: h, programs: map[string][2]string{"bench/rdmacost": {"/go", "/go"}}}
	b := &bench{rounds: 2}
	err := b.messagesOf(t.Context(), m, "here", "us", func(p programs) map[string][]string {
		if p.ours != "/go" || p.inC != "/c" || p.fabric != "/fabric" {
			t.Errorf("programs %v", p)
		}
		return commands
	})
	return b.run, order, err
}

func ofMessages(figure string, goes, cm, c float64) results.Series {
	return results.Series{Place: "here", Test: results.MessagesTest, Figure: figure, At: 64, Unit: "us",
		Values: map[string][]float64{results.Go: {goes, goes}, results.CM: {cm, cm}, results.C: {c, c}}}
}

// Each figure is of its program, and each round begins with another one.
func TestMessages(t *testing.T) {
	three := map[string][]string{results.Go: {"/go", "rdma"}, results.CM: {"/go", "cm"}, results.C: {"/c"}}
	run, order, err := messagesIn(t, three, map[string]string{results.Go: "small.p50 3\ncollections 2\n",
		results.CM: "small.p50 2\ncollections 2\n", results.C: "small.p50 1\n"})
	if d := cmp.Diff([]results.Series{ofMessages("small.p50", 3, 2, 1)}, run.Series); err != nil || d != "" {
		t.Error(err, d)
	}
	if want := []string{results.Go, results.CM, results.C, results.CM, results.C, results.Go}; !slices.Equal(order, want) {
		t.Errorf("order %v", order)
	}
}

// A program that measures both packages is run once a round.
func TestMessageCost(t *testing.T) {
	both := map[string][]string{results.Go: {"/go"}, results.C: {"/c"}}
	run, _, err := messagesIn(t, both, map[string]string{
		results.Go: "large_rdma 30\nlarge_cm 20\nlarge_ratio 1.5\noffered_rdma 40\noffered_cm 21\noffered_ratio 2\n",
		results.C:  "large 10\n"})
	want := []results.Series{ofMessages("large", 30, 20, 10), ofMessages("offered", 40, 21, 10)}
	if d := cmp.Diff(want, run.Series); err != nil || d != "" {
		t.Error(err, d)
	}
}

// Figures of libfabric are beside the others. One of its programs that fails is reported and left out.
func TestMessagesOnLibfabric(t *testing.T) {
	commands := map[string][]string{results.Go: {"/go"}, results.C: {"/c"}, results.Fabric: {"/fabric"},
		results.FabricRDM: {"/fabric", "rdm"}}
	run, order, err := messagesIn(t, commands, map[string]string{
		results.Go: "large_rdma 30\nlarge_cm 20\noffered_rdma 40\noffered_cm 21\n", results.C: "large 10\n",
		results.Fabric: "large 15\n", results.FabricRDM: "not a figure\n"})
	want := []results.Series{ofMessages("large", 30, 20, 10), ofMessages("offered", 40, 21, 10)}
	for i := range want {
		want[i].Values[results.Fabric] = []float64{15, 15}
	}
	if d := cmp.Diff(want, run.Series); err != nil || d != "" {
		t.Error(err, d)
	}
	if n := slices.Index(order, results.FabricRDM); n < 0 || slices.Contains(order[n+1:], results.FabricRDM) {
		t.Errorf("order %v", order)
	}
	if f := run.Failures; len(f) != 1 || f[0].Part != "here" || f[0].What != "libfabric RDM, round 1" ||
		!strings.Contains(f[0].Why, "not a figure") {
		t.Errorf("failures %v", f)
	}
}

// Figures of cgo and TCP are beside the others, which need not have them. A message of 1 MiB is one for both.
func TestMessagesBeside(t *testing.T) {
	commands := map[string][]string{results.Go: {"/go"}, results.C: {"/c"}, results.Cgo: {"/cgo"},
		results.TCP: {"/go", "tcp"}}
	run, _, err := messagesIn(t, commands, map[string]string{
		results.Go: "read_rdma 3\nread_cm 2\noffered_rdma 40\noffered_cm 21\n", results.C: "read 1\nlarge 10\n",
		results.Cgo: "read 4\nlarge 12\n", results.TCP: "large 50\n"})
	want := []results.Series{ofMessages("read", 3, 2, 1), ofMessages("offered", 40, 21, 10)}
	want[0].Values[results.Cgo] = []float64{4, 4}
	want[1].Values[results.Cgo], want[1].Values[results.TCP] = []float64{12, 12}, []float64{50, 50}
	if d := cmp.Diff(want, run.Series); err != nil || d != "" {
		t.Error(err, d)
	}
}

// Programs without a common figure are an error.
func TestNoMessages(t *testing.T) {
	both := map[string][]string{results.Go: {"/go"}, results.C: {"/c"}}
	_, _, err := messagesIn(t, both, map[string]string{results.Go: "large_rdma 30\nlarge_cm 20\n", results.C: "small 1\n"})
	if err == nil || !strings.Contains(err.Error(), "no figure in common") {
		t.Errorf("%v", err)
	}
}
