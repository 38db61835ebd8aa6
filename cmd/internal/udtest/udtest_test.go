package udtest

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/cm"
)

func TestStatus(t *testing.T) {
	lost := errors.New("lost")
	for _, c := range []struct {
		err  error
		want int
	}{
		{nil, 0},
		{lost, -1},
		{failure{lost, -22}, -22},
		{fmt.Errorf("request: %w", errors.Join(failure{lost, 1}, lost)), 1},
		{failure{lost, 0}, -1}, // detected by the library, not the kernel
	} {
		if got := status(c.err); got != c.want {
			t.Errorf("%v: %d, want %d", c.err, got, c.want)
		}
	}
	if !errors.Is(failure{lost, 1}, lost) {
		t.Error("a failure hides its error")
	}
}

func TestFailed(t *testing.T) {
	var out strings.Builder
	test := &Test{Out: &out, name: "udaddy"}
	err := test.Failed(&cm.Event{Type: cm.EventAddrError, Status: -19})
	if want := "udaddy: event: RDMA_CM_EVENT_ADDR_ERROR, error: -19\n"; out.String() != want {
		t.Errorf("printed %q, want %q", out.String(), want)
	}
	if err == nil || status(err) != -19 {
		t.Errorf("error %v, status %d", err, status(err))
	}
}

func TestReady(t *testing.T) {
	test := &Test{Options: Options{Connections: 2}}
	for i, want := range []bool{false, false, true} {
		if got := test.ready(); got != want {
			t.Errorf("with %d connections: %v", i, got)
		}
		test.Nodes = append(test.Nodes, &Node{Connected: true})
	}
	test.Nodes = test.Nodes[:2]
	test.Nodes[0].Connected = false
	if test.ready() {
		t.Error("one is not connected")
	}
}
