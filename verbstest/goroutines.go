package verbstest

import (
	"bytes"
	"fmt"
	"regexp"
	"runtime"
	"runtime/pprof"
	"slices"
	"strings"
	"time"
)

// machineLabel is the profiler label of the goroutines of a machine. Its values are unique in the
// process.
const machineLabel = "verbstest machine"

func (m *Machine) label() string { return fmt.Sprintf("%s #%d", m.name, m.device) }

// goroutineTime is how long goroutines may take to end after the test's cleanup. It is long, for loaded
// machines: only a test that fails waits for it.
const goroutineTime = 3 * time.Second

// checkGoroutines reports the program's goroutines that still run on the machines. They get some
// time: what ends them may just have happened.
func (n *Network) checkGoroutines() {
	n.mu.Lock()
	machines, allowed := n.machines, n.allowed[GoroutineLeft]
	n.mu.Unlock()
	if allowed || len(machines) == 0 || n.failed {
		return
	}
	var left map[*Machine][]goroutine
	for end, pause := time.Now().Add(goroutineTime), time.Millisecond; ; pause = min(2*pause, goroutineTime/20) {
		if left = goroutinesOf(machines); len(left) == 0 {
			return
		}
		if time.Now().After(end) {
			break
		}
		time.Sleep(pause)
	}
	created := creators()
	for _, m := range machines {
		for _, g := range left[m] {
			text := "a goroutine still runs " + g.function + " at " + g.at
			if at := created[g.function]; at != "" {
				text += ", started at " + at
			}
			n.broken(m, GoroutineLeft, text+": end it before the test ends")
		}
	}
}

// lingering is the function of goroutines in which Close of an rsocket goes on after it has returned, for at most
// 30 seconds. Their labels are those of the callers of Close.
const lingering = "(*Conn).lingerFor"

// awaitGoroutines gives the goroutines on the machine time to end, before their objects are taken for left.
func (m *Machine) awaitGoroutines() {
	m.net.mu.Lock()
	allowed := m.net.allowed[GoroutineLeft] || m.net.failed
	m.net.mu.Unlock()
	start, pause := time.Now(), time.Millisecond
	for ; ; pause = min(2*pause, goroutineTime/20) {
		linger := runs(lingering)
		limit := goroutineTime
		if linger {
			limit *= 3
		}
		if !linger && (allowed || len(goroutinesOf([]*Machine{m})) == 0) || time.Since(start) > limit {
			return
		}
		time.Sleep(pause)
	}
}

// runs reports whether a goroutine of the process runs a function.
func runs(function string) bool {
	var b bytes.Buffer
	err := pprof.Lookup("goroutine").WriteTo(&b, 1)
	return err == nil && bytes.Contains(b.Bytes(), []byte(function))
}

// A goroutine is one that has not ended.
type goroutine struct {
	function string // that it was started with
	at       string // the line of the function that it executes
}

var labelText = regexp.MustCompile(`"` + machineLabel + `":"([^"]*)"`)

// goroutinesOf returns the goroutines of machines whose function is not one of the library's. The
// calling goroutine is not included.
func goroutinesOf(machines []*Machine) map[*Machine][]goroutine {
	var b bytes.Buffer
	if err := pprof.Lookup("goroutine").WriteTo(&b, 1); err != nil {
		return nil
	}
	left := map[*Machine][]goroutine{}
	for part := range strings.SplitSeq(b.String(), "\n\n") {
		label := labelText.FindStringSubmatch(part)
		if label == nil {
			continue
		}
		for _, m := range machines {
			if g := parse(part); m.label() == label[1] && g.function != "" {
				left[m] = append(left[m], g)
			}
		}
	}
	return left
}

var frameText = regexp.MustCompile(`(?m)^#\s+0x[0-9a-f]+\s+(\S+)\+0x[0-9a-f]+\s+(.*):(\d+)$`)

// starters are functions that only call the function of their goroutine.
var starters = []string{"runtime.goexit", "runtime.main", "testing.tRunner", "sync.(*WaitGroup).Go.func1"}

// parse returns the goroutine of a part of a profile, without a function if it is one of the library or
// one that package os/signal starts and does not end.
func parse(part string) (g goroutine) {
	frames := frameText.FindAllStringSubmatch(part, -1)
	for i, f := range frames {
		if i > 0 && slices.Contains(starters, f[1]) { // a goroutine that has not run yet has no other
			continue
		}
		if g = (goroutine{}); !ofLibrary(f[1], f[2]) && f[1] != "os/signal.loop" {
			g = goroutine{f[1], base(f[2]) + ":" + f[3]}
		}
	}
	return g
}

func base(file string) string { return file[strings.LastIndexByte(file, '/')+1:] }

var createdText = regexp.MustCompile(`(?m)^(\S+)\(.*\)\n\t.*\ncreated by .*\n\t(.*):(\d+)`)

// creators returns where the goroutines of the process were started, by their functions.
func creators() map[string]string {
	b := make([]byte, 1<<20)
	b = b[:runtime.Stack(b, true)]
	all := map[string]string{}
	for _, m := range createdText.FindAllStringSubmatch(string(b), -1) {
		all[m[1]] = base(m[2]) + ":" + m[3]
	}
	return all
}
