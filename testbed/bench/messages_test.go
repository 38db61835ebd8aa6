package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/goverbs/goverbs/bench/results"
)

// messagesIn runs two rounds on a fake host, on which output returns a program's output.
func messagesIn(t *testing.T, commands map[string][]string, output map[string]string) ([]results.Series, []string,
	error) {
	t.Helper()
	var order []string
	h := &fake{func(args []string) (string, error) {
		for who, command := range commands {
			if strings.HasSuffix(strings.Join(args, " "), strings.Join(command, " ")) {
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
		if p.ours != "/go" || p.inC != "/c" {
			t.Errorf("programs %v", p)
		}
		return commands
	})
	return b.run.Series, order, err
}

func ofMessages(figure string, goes, cm, c float64) results.Series {
	return results.Series{Place: "here", Test: results.MessagesTest, Figure: figure, At: 64, Unit: "us",
		Values: map[string][]float64{results.Go: {goes, goes}, results.CM: {cm, cm}, results.C: {c, c}}}
}

// Each figure is of its program, and each round begins with another one.
func TestMessages(t *testing.T) {
	three := map[string][]string{results.Go: {"/go", "rdma"}, results.CM: {"/go", "cm"}, results.C: {"/c"}}
	all, order, err := messagesIn(t, three, map[string]string{results.Go: "small.p50 3\ncollections 2\n",
		results.CM: "small.p50 2\ncollections 2\n", results.C: "small.p50 1\n"})
	if d := cmp.Diff([]results.Series{ofMessages("small.p50", 3, 2, 1)}, all); err != nil || d != "" {
		t.Error(err, d)
	}
	if want := []string{results.Go, results.CM, results.C, results.CM, results.C, results.Go}; !slices.Equal(order, want) {
		t.Errorf("order %v", order)
	}
}

// A program that measures both packages is run once a round.
func TestMessageCost(t *testing.T) {
	both := map[string][]string{results.Go: {"/go"}, results.C: {"/c"}}
	all, _, err := messagesIn(t, both, map[string]string{
		results.Go: "large_rdma 30\nlarge_cm 20\nlarge_ratio 1.5\noffered_rdma 40\noffered_cm 21\noffered_ratio 2\n",
		results.C:  "large 10\n"})
	want := []results.Series{ofMessages("large", 30, 20, 10), ofMessages("offered", 40, 21, 10)}
	if d := cmp.Diff(want, all); err != nil || d != "" {
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
