// Package rdmaprom exports what connections of package rdma do to Prometheus.
//
//	metrics := rdmaprom.NewCollector()
//	prometheus.MustRegister(metrics)
//	o := rdma.Options{Trace: metrics.Trace("server", nil)}
//	l, err := rdma.Listen(":7471", &rdma.ListenOptions{Options: o})
//	metrics.AddListener("server", l)
//
// Values are read when Prometheus asks for them, so messages and calls cost nothing more.
package rdmaprom

import (
	"maps"
	"slices"
	"strconv"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/goverbs/goverbs/rdma"
	"github.com/goverbs/goverbs/uverbs"
)

// A Collector is a [prometheus.Collector] of connections, listeners and clients. Its methods may be called
// concurrently.
//
// The label name of a metric is the name that the program has given to a group of connections, a listener or a client.
// No metric is of a single connection: their number would grow with the connections. Clients with several rails have
// metrics of each, whose labels rail and address are its number and the address of the server.
type Collector struct {
	mu        sync.Mutex
	groups    map[string]*group
	listeners map[string]*rdma.Listener
	clients   map[string]Client
}

// A Client is a [rdma.Client] of any type.
type Client interface {
	Stats() rdma.ClientStats
	Rails() []rdma.RailStats
}

// A group has the connections of one name.
type group struct {
	began  uint64                  // connections
	conns  map[*rdma.Conn]struct{} // that have not ended
	ending map[*rdma.Conn]struct{} // that have ended, with messages that the program may still receive
	past   rdma.Stats              // counters of the others
}

// NewCollector returns a Collector without connections.
func NewCollector() *Collector {
	return &Collector{groups: map[string]*group{}, listeners: map[string]*rdma.Listener{}, clients: map[string]Client{}}
}

// Trace returns a Trace for Options.Trace. The connections with these Options are those of the group name, which other
// Options may share. Next, if it is not nil, has functions that are called, too.
func (m *Collector) Trace(name string, next *rdma.Trace) *rdma.Trace {
	t := rdma.Trace{}
	if next != nil {
		t = *next
	}
	connected, ended := t.Connected, t.Ended
	t.Connected = func(c *rdma.Conn) {
		m.begin(name, c)
		if connected != nil {
			connected(c)
		}
	}
	t.Ended = func(c *rdma.Conn, err error) {
		m.end(name, c)
		if ended != nil {
			ended(c, err)
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.groups[name] == nil {
		m.groups[name] = &group{conns: map[*rdma.Conn]struct{}{}, ending: map[*rdma.Conn]struct{}{}}
	}
	return &t
}

// AddListener adds a listener. One with the same name is replaced.
func (m *Collector) AddListener(name string, l *rdma.Listener) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.listeners[name] = l
}

// AddClient adds a client. One with the same name is replaced.
func (m *Collector) AddClient(name string, c Client) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.clients[name] = c
}

func (m *Collector) begin(name string, c *rdma.Conn) {
	m.mu.Lock()
	defer m.mu.Unlock()
	g := m.groups[name]
	g.began++
	g.conns[c] = struct{}{}
}

// maxEnding is how many connections that have ended a group keeps until the next Collect: calls that their end has
// interrupted return a moment later, and then count.
const maxEnding = 100

func (m *Collector) end(name string, c *rdma.Conn) {
	m.mu.Lock()
	g := m.groups[name]
	delete(g.conns, c)
	g.ending[c] = struct{}{}
	many := len(g.ending) > maxEnding
	m.mu.Unlock()
	if many {
		m.settle(g)
	}
}

// settle adds connections that have ended to the past, when the program has received all of their messages. It calls
// Stats without m.mu, because Stats may call the functions of a Trace.
func (m *Collector) settle(g *group) {
	m.mu.Lock()
	ending := slices.Collect(maps.Keys(g.ending))
	m.mu.Unlock()
	for _, c := range ending {
		if s := c.Stats(); s.Unreceived == 0 {
			m.mu.Lock()
			if _, ok := g.ending[c]; ok { // no other goroutine has added it
				addCounters(&g.past, &s)
				delete(g.ending, c)
			}
			m.mu.Unlock()
		}
	}
}

// addCounters adds what only grows.
func addCounters(to, s *rdma.Stats) {
	to.Sent += s.Sent
	to.SentBytes += s.SentBytes
	to.Received += s.Received
	to.ReceivedBytes += s.ReceivedBytes
	to.Operations += s.Operations
	to.Stalls += s.Stalls
	to.StallTime += s.StallTime
	to.CallErrors += s.CallErrors
	for i, n := range s.CallTimes.Counts {
		to.CallTimes.Counts[i] += n
	}
	to.CallTimes.Sum += s.CallTimes.Sum
}

// A sample is what a group has done, and its connections.
type sample struct {
	rdma.Stats
	began uint64
	conns int
}

// sample returns the counters of all connections and the state of those that have not ended. Connections through the
// same device share the memory that Stats.Pooled counts.
func (m *Collector) sample(g *group) sample {
	m.mu.Lock()
	s := sample{Stats: g.past, began: g.began, conns: len(g.conns)}
	conns, ending := slices.Collect(maps.Keys(g.conns)), slices.Collect(maps.Keys(g.ending))
	m.mu.Unlock()
	pooled := map[*uverbs.PD]int64{}
	for _, c := range conns {
		one := c.Stats()
		addCounters(&s.Stats, &one)
		s.Unreceived += one.Unreceived
		s.Requests += one.Requests
		s.CallsOut += one.CallsOut
		s.CallsIn += one.CallsIn
		s.Registered += one.Registered
		pooled[c.CM().PD()] = one.Pooled
	}
	for _, c := range ending {
		one := c.Stats()
		addCounters(&s.Stats, &one)
	}
	for _, n := range pooled {
		s.Pooled += n
	}
	return s
}

// Describe implements [prometheus.Collector].
func (m *Collector) Describe(descs chan<- *prometheus.Desc) {
	for i := range connMetrics {
		descs <- connMetrics[i].desc
	}
	for i := range railMetrics {
		descs <- railMetrics[i].desc
	}
	for _, d := range []*prometheus.Desc{conns, connsBegan, callTimes, accepted, refused, memory, maxMemory, connected,
		failed, retries, clientConns} {
		descs <- d
	}
}

// Collect implements [prometheus.Collector].
func (m *Collector) Collect(metrics chan<- prometheus.Metric) {
	m.mu.Lock()
	groups, listeners, clients := maps.Clone(m.groups), maps.Clone(m.listeners), maps.Clone(m.clients)
	m.mu.Unlock()
	counter := func(d *prometheus.Desc, n uint64, name string) {
		metrics <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), name)
	}
	gauge := func(d *prometheus.Desc, n float64, name string) {
		metrics <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, n, name)
	}
	for name, g := range groups {
		m.settle(g)
		s := m.sample(g)
		counter(connsBegan, s.began, name)
		gauge(conns, float64(s.conns), name)
		for i := range connMetrics {
			k := &connMetrics[i]
			metrics <- prometheus.MustNewConstMetric(k.desc, k.kind, k.value(&s.Stats), name)
		}
		metrics <- histogram(callTimes, &s.CallTimes, name)
	}
	for name, l := range listeners {
		s := l.Stats()
		counter(accepted, s.Accepted, name)
		counter(refused, s.Refused, name)
		gauge(memory, float64(s.Memory), name)
		gauge(maxMemory, float64(s.MaxMemory), name)
	}
	for name, c := range clients {
		s := c.Stats()
		counter(connected, s.Connected, name)
		counter(failed, s.Failed, name)
		counter(retries, s.Retries, name)
		gauge(clientConns, float64(s.Conns), name)
		if rails := c.Rails(); len(rails) > 1 {
			collectRails(metrics, name, rails)
		}
	}
}

// collectRails sends the metrics of the rails of a client.
func collectRails(metrics chan<- prometheus.Metric, name string, rails []rdma.RailStats) {
	for i := range rails {
		for k := range railMetrics {
			m := &railMetrics[k]
			metrics <- prometheus.MustNewConstMetric(m.desc, m.kind, m.value(&rails[i]), name, strconv.Itoa(i), rails[i].Addr)
		}
	}
}

// histogram returns a metric with the durations of h in seconds.
func histogram(d *prometheus.Desc, h *rdma.Histogram, name string) prometheus.Metric {
	buckets := make(map[float64]uint64, rdma.HistogramBuckets)
	var n uint64
	for i, count := range h.Counts {
		n += count
		if i < rdma.HistogramBuckets-1 {
			buckets[rdma.HistogramBound(i).Seconds()] = n
		}
	}
	return prometheus.MustNewConstHistogram(d, n, h.Sum.Seconds(), buckets, name)
}

// A connMetric is a metric of the Stats of connections.
type connMetric struct {
	desc  *prometheus.Desc
	kind  prometheus.ValueType
	value func(*rdma.Stats) float64
}

func desc(name, help string) *prometheus.Desc {
	return prometheus.NewDesc("rdma_"+name, help, []string{"name"}, nil)
}

func counterOf(name, help string, f func(*rdma.Stats) uint64) connMetric {
	return connMetric{desc(name, help), prometheus.CounterValue, func(s *rdma.Stats) float64 { return float64(f(s)) }}
}

func gaugeOf(name, help string, f func(*rdma.Stats) int64) connMetric {
	return connMetric{desc(name, help), prometheus.GaugeValue, func(s *rdma.Stats) float64 { return float64(f(s)) }}
}

var connMetrics = []connMetric{
	counterOf("sent_messages_total", "Messages, calls and replies that were sent.",
		func(s *rdma.Stats) uint64 { return s.Sent }),
	counterOf("sent_bytes_total", "Bytes of messages that were sent.",
		func(s *rdma.Stats) uint64 { return s.SentBytes }),
	counterOf("received_messages_total", "Messages and replies that the program has received.",
		func(s *rdma.Stats) uint64 { return s.Received }),
	counterOf("received_bytes_total", "Bytes of messages that the program has received.",
		func(s *rdma.Stats) uint64 { return s.ReceivedBytes }),
	counterOf("operations_total", "READs, WRITEs and atomic operations on memory of peers.",
		func(s *rdma.Stats) uint64 { return s.Operations }),
	counterOf("stalls_total", "Calls that waited for credits or for room in the send queue.",
		func(s *rdma.Stats) uint64 { return s.Stalls }),
	{desc("stall_seconds_total", "Time of these waits."), prometheus.CounterValue,
		func(s *rdma.Stats) float64 { return s.StallTime.Seconds() }},
	counterOf("call_errors_total", "Calls of peers that have returned an error.",
		func(s *rdma.Stats) uint64 { return s.CallErrors }),
	gaugeOf("unreceived_messages", "Messages that have arrived and that the program has not received.",
		func(s *rdma.Stats) int64 { return int64(s.Unreceived) }),
	gaugeOf("send_queue_requests", "Requests in send queues.",
		func(s *rdma.Stats) int64 { return int64(s.Requests) }),
	gaugeOf("calls_out", "Calls of this program without a reply.",
		func(s *rdma.Stats) int64 { return int64(s.CallsOut) }),
	gaugeOf("calls_in", "Calls of peers that the program has received, without a reply.",
		func(s *rdma.Stats) int64 { return int64(s.CallsIn) }),
	gaugeOf("receive_bytes", "Registered memory for receives.",
		func(s *rdma.Stats) int64 { return s.Registered }),
	gaugeOf("pool_bytes", "Registered memory for buffers and long messages.",
		func(s *rdma.Stats) int64 { return s.Pooled }),
}

var (
	conns      = desc("connections", "Connections that have not ended.")
	connsBegan = desc("connections_total", "Connections that were established.")
	callTimes  = desc("call_duration_seconds", "Time of calls that have a reply, from Call to its return.")

	accepted  = desc("listener_accepted_total", "Clients that a listener has accepted.")
	refused   = desc("listener_refused_total", "Clients that a listener has refused.")
	memory    = desc("listener_memory_bytes", "Registered memory that ListenOptions.MaxMemory limits.")
	maxMemory = desc("listener_memory_limit_bytes", "ListenOptions.MaxMemory, or 0 without a limit.")

	connected   = desc("client_connected_total", "Connections that a client has established.")
	failed      = desc("client_failed_total", "Attempts of a client to connect that have failed.")
	retries     = desc("client_retries_total", "Calls that Client.Retry has made again.")
	clientConns = desc("client_connections", "Connections that a client uses.")
)

// A railMetric is a metric of the RailStats of a client's rails.
type railMetric struct {
	desc  *prometheus.Desc
	kind  prometheus.ValueType
	value func(*rdma.RailStats) float64
}

func railCounter(name, help string, f func(*rdma.RailStats) uint64) railMetric {
	return railMetric{railDesc(name, help), prometheus.CounterValue,
		func(s *rdma.RailStats) float64 { return float64(f(s)) }}
}

func railDesc(name, help string) *prometheus.Desc {
	return prometheus.NewDesc("rdma_client_rail_"+name, help, []string{"name", "rail", "address"}, nil)
}

var railMetrics = []railMetric{
	{railDesc("up", "1 if the rail has a connection and its port is up, else 0."), prometheus.GaugeValue,
		func(s *rdma.RailStats) float64 {
			if s.Up {
				return 1
			}
			return 0
		}},
	railCounter("failed_total", "Attempts to connect the rail that have failed.",
		func(s *rdma.RailStats) uint64 { return s.Failed }),
	railCounter("undelivered_total", "Connections of the rail whose end may have lost messages.",
		func(s *rdma.RailStats) uint64 { return s.Undelivered }),
	railCounter("calls_total", "Calls by Do and Retry, and parts of Spread, on the rail.",
		func(s *rdma.RailStats) uint64 { return s.Calls }),
	railCounter("sent_bytes_total", "Bytes of messages that were sent on the rail.",
		func(s *rdma.RailStats) uint64 { return s.SentBytes }),
	railCounter("received_bytes_total", "Bytes of messages that were received on the rail.",
		func(s *rdma.RailStats) uint64 { return s.ReceivedBytes }),
	railCounter("spread_bytes_total", "Bytes that Spread has transferred over the rail.",
		func(s *rdma.RailStats) uint64 { return s.SpreadBytes }),
}
