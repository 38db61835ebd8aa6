package results

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// placeName names a place for readers.
type placeName struct {
	place, title   string
	device, figure string // for a row or a chart: where it was measured, and what
}

// placeNames lists the places in the order of the page.
var placeNames = []placeName{
	{"hosts", "Two hosts, time", "two hosts", "time"},
	{"instructions", "Requests on a software ConnectX, instructions", "a software ConnectX", "instructions"},
	{"mlx5", "perftest on a software ConnectX, time", "a software ConnectX", "time"},
	{"rxe", "perftest, objects and connections on soft-RoCE, time", "soft-RoCE", "time"},
	{"instructions-rxe", "Waits and objects on soft-RoCE, instructions", "soft-RoCE", "instructions"},
	{Messages, "Package rdma on soft-RoCE, time", "soft-RoCE", "time"},
	{MessageInstructions, "Package rdma on a software ConnectX, instructions", "a software ConnectX", "instructions"},
	{Rsocket, "Rsockets on soft-RoCE, time", "soft-RoCE", "time"},
	{RsocketTwo, "Rsockets between two soft-RoCE devices, time", "two soft-RoCE devices", "time"},
	{RsocketInstructions, "Rsockets on soft-RoCE, instructions", "soft-RoCE", "instructions"},
	{Native, "Without a device", "queues in memory", "time"},
}

// nameOf returns the names of a place. The name of a place that is not in the
// list is its only name.
func nameOf(place string) placeName {
	for _, n := range placeNames {
		if n.place == place {
			return n
		}
	}
	return placeName{place, place, place, "time"}
}

// ordered returns the places in the order of placeNames, with other places at the
// end.
func (r *Run) ordered() []Place {
	at := func(p Place) int {
		i := slices.IndexFunc(placeNames, func(n placeName) bool { return n.place == p.Name })
		if i < 0 {
			return len(placeNames)
		}
		return i
	}
	return slices.SortedStableFunc(slices.Values(r.Places), func(a, b Place) int { return cmp.Compare(at(a), at(b)) })
}

// requestNames are the names of the figures of requests.
var requestNames = map[string]string{
	"write":           "post one request",
	"inline":          "post one request, data inline",
	"list32":          "post 32 requests in one call",
	"list32inline":    "post 32 requests in one call, data inline",
	"builder32":       "post 32 requests as a batch",
	"builder32inline": "post 32 requests as a batch, data inline",
	"calls32":         "post 32 requests as a batch, two calls each",
	"calls32inline":   "post 32 requests as a batch, two calls each, data inline",
	"recv":            "post one receive",
	"recv32":          "post 32 receives in one call",
	"poll1":           "poll one completion",
	"poll32":          "poll 32 completions in one call",
	"empty":           "poll an empty queue",
	"short1":          "poll one receive of 32 bytes",
	"short32":         "poll 32 receives of 32 bytes in one call",
	"long1":           "poll one receive of 200 bytes",
	"long32":          "poll 32 receives of 200 bytes in one call",
	"loop":            "the caller's loop, included in all others",
	"write.pinned":    "post one request whose memory cgo pins",
}

// otherNames are the names of the kinds of other requests.
var otherNames = map[string]string{"ud": "SEND of UD", "xrc": "WRITE of XRC", "atomic": "atomic addition",
	"bind": "bind of a memory window", "localinv": "local invalidation", "sendinv": "SEND that invalidates"}

// wayNames say how such requests are posted.
var wayNames = []struct{ figure, name string }{
	{"list32", "post 32 in one call"}, {"builder32", "post 32 as a batch"}, {"", "post one"}}

// otherNameOf returns the name of a figure of other requests, such as "post 32 in one call: SEND of UD, data inline"
// for udlist32inline.
func otherNameOf(figure string) string {
	rest, inline := strings.CutSuffix(figure, "inline")
	for _, way := range wayNames {
		kind, found := strings.CutSuffix(rest, way.figure)
		if !found || otherNames[kind] == "" {
			continue
		}
		name := way.name + ": " + otherNames[kind]
		if inline {
			name += ", data inline"
		}
		return name
	}
	return "" // of no request that is known
}

// stepNames are the names of the steps of cmtime.
var stepNames = map[string]string{
	"full connect":  "the whole connection",
	"create id":     "create the id",
	"resolve addr":  "resolve the address",
	"resolve route": "resolve the route",
	"create qp":     "create the queue pair",
	"init qp":       "initialize the queue pair",
	"cm connect":    "exchange the messages that connect",
	"disconnect":    "disconnect",
	"destroy id":    "destroy the id",
	"destroy qp":    "destroy the queue pair",
}

// objectNames are the names of the kinds of objects.
var objectNames = map[string]string{"MR": "memory region", "CQ": "completion queue", "QP": "queue pair",
	"connection": "connection"}

// figureNames are the names of the figures of perftest.
var figureNames = map[string]string{
	"typical": "p50", "99 %": "p99", "least": "shortest", "rate": "rate", "peak": "peak",
}

// percentileOf returns the end of a figure's name that is a percentile, such as
// p99.9 of small.p99.9.
func percentileOf(figure string) (name, percentile string) {
	if at := strings.Index(figure, ".p"); at >= 0 {
		return figure[:at], figure[at+1:]
	}
	return figure, ""
}

// short names a figure in a table of its test.
func (s Series) short() string {
	name := ""
	switch s.Test {
	case "requests":
		name = requestNames[s.Figure]
	case OtherRequests:
		name = cmp.Or(otherNameOf(s.Figure), requestNames[s.Figure])
	case "cmtime":
		name = stepNames[s.Figure]
	case "objects":
		object, step, _ := strings.Cut(s.Figure, ".")
		if objectNames[object] != "" {
			name = step + " a " + objectNames[object]
		}
	case Memory:
		object, kind, _ := strings.Cut(s.Figure, ".")
		if objectNames[object] != "" {
			name = objectNames[object] + map[string]string{"rss": ", resident", "mapped": ", mapped"}[kind]
		}
	case MessagesTest:
		figure, percentile := percentileOf(s.Figure)
		for _, o := range operations {
			if o.figure == figure {
				name = join(o.what, percentile)
			}
		}
	}
	return cmp.Or(name, s.Figure)
}

// words names a figure in the summary, where nothing else says what its test is.
func (s Series) words() string {
	switch s.Test {
	case "requests":
		if s.At == 1 {
			return s.short()
		}
		return fmt.Sprintf("%s, with %d queue pairs", s.short(), s.At)
	case "objects":
		if s.At == 1 {
			return s.short()
		}
		return fmt.Sprintf("%s, one of %d", s.short(), s.At)
	case "cmtime", Memory, MessagesTest, OtherRequests:
		return s.short()
	case RsocketTest:
		return join(s.Figure, size(s.At))
	case ManyQPs:
		return fmt.Sprintf("WRITE of 64 bytes, queue pairs: %d", s.At)
	case ParallelPosts:
		return fmt.Sprintf("WRITE of 32 bytes, data inline, goroutines: %d", s.At)
	case IdleQueues:
		return fmt.Sprintf("WRITE of 32 bytes and its wait, idle queues: %d", s.At)
	}
	_, options, found := strings.Cut(s.Test, " -")
	name := fmt.Sprintf("%s of %s, %s", operation(s.Test), size(s.At), cmp.Or(figureNames[s.Figure], s.Figure))
	if found {
		name += ", option -" + options
	}
	return name
}

// optionNames say what the options of perftest do that are measured.
var optionNames = map[string]string{
	"e":    "waits for events",
	"Q 1":  "a completion for each request",
	"l 32": "32 requests in one call",
	"t 1":  "one request at a time",
	"I 64": "data inline",
}

// optionName names a test with an option.
func optionName(test string) string {
	_, option, _ := strings.Cut(test, " -")
	return fmt.Sprintf("%s (`%s`)", join(operation(test), optionNames[option]), test)
}

// size formats a number of bytes.
func size(bytes int) string {
	if bytes >= 1024 && bytes%1024 == 0 {
		return fmt.Sprintf("%d KiB", bytes/1024)
	}
	return fmt.Sprintf("%d bytes", bytes)
}
