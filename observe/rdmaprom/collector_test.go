package rdmaprom_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"

	"github.com/goverbs/goverbs/observe/rdmaprom"
	"github.com/goverbs/goverbs/rdma"
	"github.com/goverbs/goverbs/verbstest"
)

// rig has a server that replies to calls, and a client, on one machine in memory.
type rig struct {
	metrics *rdmaprom.Collector
	l       *rdma.Listener
	cl      *rdma.Client[struct{}]
	served  chan error
}

func newRig(t *testing.T, next *rdma.Trace) *rig {
	t.Helper()
	machine := verbstest.New(t)
	r := &rig{metrics: rdmaprom.NewCollector(), served: make(chan error, 1)}
	o := &rdma.ListenOptions{Options: rdma.Options{Trace: r.metrics.Trace("server", nil)}, MaxMemory: 1 << 30}
	var err error
	if r.l, err = rdma.Listen(machine.Addr().String()+":0", o); err != nil {
		t.Fatal(err)
	}
	go func() {
		r.served <- r.l.Serve(t.Context(), rdma.Handle(func(_ context.Context, q *rdma.Request) ([]byte, error) {
			if string(q.Bytes()) == "fail" {
				return nil, errors.New("as the caller asks")
			}
			return q.Bytes(), nil
		}, nil))
	}()
	r.cl = rdma.NewClient(r.l.Addr().String(), &rdma.ClientOptions[struct{}]{
		Options: rdma.Options{Trace: r.metrics.Trace("client", next)}})
	r.metrics.AddListener("server", r.l)
	r.metrics.AddClient("client", r.cl)
	return r
}

func (r *rig) call(t *testing.T, request string) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	return r.cl.Do(ctx, func(ctx context.Context, c *rdma.Conn, _ struct{}) error {
		m, err := c.Call(ctx, []byte(request))
		m.Release()
		return err
	})
}

func (r *rig) close(t *testing.T) {
	t.Helper()
	if err := errors.Join(r.cl.Close(), r.l.Close(), <-r.served); err != nil {
		t.Fatal(err)
	}
}

// values returns the metrics of a collector by name, and by the value of the label name. A histogram is its count.
func values(t *testing.T, m *rdmaprom.Collector) map[string]map[string]float64 {
	t.Helper()
	reg := prometheus.NewPedanticRegistry()
	reg.MustRegister(m)
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]map[string]float64{}
	for _, f := range families {
		of := map[string]float64{}
		for _, x := range f.GetMetric() {
			v := x.GetCounter().GetValue() + x.GetGauge().GetValue()
			if f.GetType() == dto.MetricType_HISTOGRAM {
				v = float64(x.GetHistogram().GetSampleCount())
			}
			of[x.GetLabel()[0].GetValue()] = v
		}
		all[f.GetName()] = of
	}
	return all
}

// TestCollector compares the metrics of a client and a server with what they have done, before and after the end of
// the connection.
func TestCollector(t *testing.T) {
	ended := make(chan error, 1)
	r := newRig(t, &rdma.Trace{Ended: func(_ *rdma.Conn, err error) { ended <- err }})
	for range 3 {
		if err := r.call(t, "hello"); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.call(t, "fail"); err == nil {
		t.Fatal("a call that fails has a reply")
	}
	counters := map[string]map[string]float64{
		"rdma_connections_total":       {"client": 1, "server": 1},
		"rdma_sent_messages_total":     {"client": 4, "server": 4},
		"rdma_sent_bytes_total":        {"client": 19, "server": 15 + 18},
		"rdma_received_messages_total": {"client": 3, "server": 4},
		"rdma_received_bytes_total":    {"client": 15, "server": 19},
		"rdma_call_errors_total":       {"client": 1, "server": 0},
		"rdma_call_duration_seconds":   {"client": 3, "server": 0},
		"rdma_listener_accepted_total": {"server": 1},
		"rdma_listener_refused_total":  {"server": 0},
		"rdma_client_connected_total":  {"client": 1},
		"rdma_client_failed_total":     {"client": 0},
		"rdma_client_retries_total":    {"client": 0},
	}
	gauges := map[string]map[string]float64{
		"rdma_connections":         {"client": 1, "server": 1},
		"rdma_unreceived_messages": {"client": 0, "server": 0},
		"rdma_calls_out":           {"client": 0, "server": 0},
		"rdma_calls_in":            {"client": 0, "server": 0},
		"rdma_client_connections":  {"client": 1},
	}
	compare(t, values(t, r.metrics), counters)
	compare(t, values(t, r.metrics), gauges)
	v := values(t, r.metrics)
	if v["rdma_receive_bytes"]["server"] < 100<<10 || v["rdma_listener_memory_bytes"]["server"] <= 0 {
		t.Errorf("registered memory: %v", v)
	}
	r.close(t)
	if err := <-ended; err == nil {
		t.Error("the program's own function for the end is called without an error")
	}
	for name := range gauges {
		for who := range gauges[name] {
			gauges[name][who] = 0
		}
	}
	compare(t, values(t, r.metrics), counters)
	compare(t, values(t, r.metrics), gauges)
}

func compare(t *testing.T, got, want map[string]map[string]float64) {
	t.Helper()
	for name, of := range want {
		if len(got[name]) != len(of) {
			t.Errorf("%s has %v, want %v", name, got[name], of)
		}
		for who, v := range of {
			if got[name][who] != v {
				t.Errorf("%s of %s is %v, want %v", name, who, got[name][who], v)
			}
		}
	}
}

// TestManyEnds has more connections end than a group keeps, while metrics are collected.
func TestManyEnds(t *testing.T) {
	r := newRig(t, nil)
	const conns = 120
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	o := &rdma.Options{Trace: r.metrics.Trace("client", nil)}
	for range conns {
		c, err := rdma.Dial(ctx, r.l.Addr().String(), o)
		if err != nil {
			t.Fatal(err)
		}
		m, err := c.Call(ctx, nil)
		if err != nil {
			t.Fatal(err)
		}
		m.Release()
		values(t, r.metrics)
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
	}
	r.close(t)
	compare(t, values(t, r.metrics), map[string]map[string]float64{
		"rdma_connections_total":     {"client": conns, "server": conns},
		"rdma_connections":           {"client": 0, "server": 0},
		"rdma_sent_messages_total":   {"client": conns, "server": conns},
		"rdma_call_duration_seconds": {"client": conns, "server": 0},
	})
}

// TestRails compares the metrics of a client with two rails with what it has done.
func TestRails(t *testing.T) {
	machine := verbstest.New(t)
	second := machine.AddDevice()
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	l, err := rdma.Listen(":7471", nil)
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() {
		served <- l.Serve(ctx, func(ctx context.Context, c *rdma.Conn) error {
			return c.ServeCalls(ctx, func(b []byte) []byte { return b })
		})
	}()
	addrs := []string{machine.AddrPort(7471).String(), second.AddrPort(7471).String()}
	cl := rdma.NewClient(addrs[0], &rdma.ClientOptions[struct{}]{Rails: []rdma.Rail{{Addr: addrs[1]}}})
	metrics := rdmaprom.NewCollector()
	metrics.AddClient("client", cl)
	for cl.Stats().Conns < 2 || cl.Rails()[1].Calls == 0 {
		err := cl.Do(ctx, func(ctx context.Context, c *rdma.Conn, _ struct{}) error {
			m, err := c.Call(ctx, []byte("hello"))
			m.Release()
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	want := map[string]map[string]float64{}
	for _, s := range cl.Rails() {
		for name, v := range map[string]float64{"up": 1, "failed_total": 0, "calls_total": float64(s.Calls),
			"sent_bytes_total": 5 * float64(s.Calls), "received_bytes_total": 5 * float64(s.Calls), "spread_bytes_total": 0} {
			name = "rdma_client_rail_" + name
			if want[name] == nil {
				want[name] = map[string]float64{}
			}
			want[name][s.Addr] = v // the first label
		}
	}
	compare(t, values(t, metrics), want)
	if problems, err := testutil.CollectAndLint(metrics); len(problems) > 0 || err != nil {
		t.Error(problems, err)
	}
	if err := errors.Join(cl.Close(), l.Close(), <-served); err != nil {
		t.Fatal(err)
	}
}

// counted is a client with two rails.
type counted []rdma.RailStats

func (counted) Stats() rdma.ClientStats   { return rdma.ClientStats{} }
func (c counted) Rails() []rdma.RailStats { return c }

// TestRailMetrics checks of which field of RailStats each metric is.
func TestRailMetrics(t *testing.T) {
	metrics := rdmaprom.NewCollector()
	metrics.AddClient("client", counted{{Addr: "a", Up: true, Failed: 2, Undelivered: 3, Calls: 4, SentBytes: 5,
		ReceivedBytes: 6, SpreadBytes: 7}, {Addr: "b"}})
	want := map[string]map[string]float64{}
	for name, v := range map[string]float64{"up": 1, "failed_total": 2, "undelivered_total": 3, "calls_total": 4,
		"sent_bytes_total": 5, "received_bytes_total": 6, "spread_bytes_total": 7} {
		want["rdma_client_rail_"+name] = map[string]float64{"a": v, "b": 0}
	}
	compare(t, values(t, metrics), want)
}

// TestLint checks names and help as Prometheus asks for them.
func TestLint(t *testing.T) {
	r := newRig(t, nil)
	defer r.close(t)
	problems, err := testutil.CollectAndLint(r.metrics)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}

// TestDescribed checks that each metric is described, which a registry demands, and has the prefix.
func TestDescribed(t *testing.T) {
	descs := make(chan *prometheus.Desc, 100)
	rdmaprom.NewCollector().Describe(descs)
	close(descs)
	n := 0
	for d := range descs {
		n++
		if !strings.Contains(d.String(), `fqName: "rdma_`) {
			t.Error(d)
		}
	}
	if n != 32 {
		t.Errorf("%d metrics are described, want 32", n)
	}
}
