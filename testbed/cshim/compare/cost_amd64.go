//go:build speed

package compare

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/uverbs"
)

// A Costed is a device whose programs are measured. It only records.
type Costed struct {
	Name string
	// Complete completes the oldest n sends or receives successfully.
	Complete func(receives bool, n int)
}

// inCopy is set in the process that runs Go's program.
const inCopy = "GOVERBS_COST"

// Cost counts the instructions of posts and polls in user space, in C's library and in this one, and logs them. Each
// program runs instruction by instruction in a process of its own, Go's in a copy of this one, which runs only the
// test. The stores to registers are not carried out, but counted as one instruction. create creates the device.
func Cost(t *testing.T, p Program, size Size, create func(t testing.TB) Costed) {
	if os.Getenv(inCopy) != "" {
		runCopy(t, p, size, create)
		return
	}
	forC := costOfC(t, p, size, create)
	forGo, functions := costOfGo(t)
	for i, name := range names {
		c, g := average(forC, i), average(forGo, i)
		t.Logf("%-22s Go %7.1f  C %7.1f  ratio %.2f", name, g, c, g/c)
		if c < 5 || g < 5 {
			t.Errorf("%s: nothing has been counted", name)
		}
	}
	for i, name := range names {
		t.Logf("Go's instructions to %s: %s", name, most(functions[(rounds-1)*len(names)+i]))
	}
}

// most lists the functions with the most instructions.
func most(functions map[string]int) (list string) {
	names := slices.SortedFunc(maps.Keys(functions), func(a, b string) int {
		return cmp.Or(functions[b]-functions[a], strings.Compare(a, b))
	})
	for _, f := range names[:min(len(names), 12)] {
		list += fmt.Sprintf("\n%8d %s", functions[f], f)
	}
	return list
}

const (
	rounds = 5
	warm   = 2 // rounds that are not counted
)

// names are those of the steps of a round.
var names = stepsOf(nil, nil)

// average returns the instructions of a step, for each request.
func average(parts []int, step int) float64 {
	sum := 0
	for round := warm; round < rounds; round++ {
		sum += parts[round*len(names)+step]
	}
	n := 1
	if strings.Contains(names[step], "32 ") {
		n = 32
	}
	return float64(sum) / float64(n*(rounds-warm))
}

// stepsOf executes a round, if there is a side, and returns what the steps are.
func stepsOf(s Side, complete func(receives bool, n int)) (names []string) {
	do := func(name string, step func() string) {
		if names = append(names, name); s != nil {
			step()
		}
	}
	sge := []uverbs.SGE{{Addr: 1 << 20, Length: 32, LKey: 1}}
	for _, n := range []int{1, 32} {
		for _, kind := range []string{"sends by SGE", "inline sends", "receives"} {
			var sends []uverbs.SendWR
			var recvs []uverbs.RecvWR
			for i := range n {
				wr := uverbs.SendWR{Opcode: uverbs.OpSend, WRID: uint64(i), Flags: uverbs.Signaled, SGL: sge, QPN: 1}
				if kind == "inline sends" {
					wr.SGL, wr.Inline = nil, Data[:32]
				}
				sends, recvs = append(sends, wr), append(recvs, uverbs.RecvWR{WRID: uint64(i), SGL: sge})
			}
			do(fmt.Sprintf("post %d %s", n, kind), func() string {
				if kind == "receives" {
					return s.Recv(recvs)
				}
				return s.Send(sends, false)
			})
			if complete != nil {
				complete(kind == "receives", n)
			}
			do(fmt.Sprintf("poll %d %s", n, kind), func() string { return s.Poll(n) })
		}
	}
	do("poll nothing", func() string { return s.Poll(1) })
	return names
}

func (d *Costed) run(s Side) {
	for range rounds {
		stepsOf(s, d.Complete)
	}
}

// measure attaches to a thread, calls run, and returns how many instructions the parts take.
func measure(t *testing.T, tid int, counts func(*stepper) error, run func()) []int {
	type result struct {
		parts []int
		err   error
	}
	attached, done := make(chan error, 1), make(chan result, 1)
	go func() {
		runtime.LockOSThread() // and do not unlock it: the thread ends
		s, err := attach(tid)
		if err == nil {
			err = counts(s)
		}
		if attached <- err; err != nil {
			return
		}
		parts, err := s.parts(rounds * len(names))
		done <- result{parts, err}
	}()
	if err := <-attached; err != nil {
		t.Fatal(err)
	}
	run()
	r := <-done
	if r.err != nil {
		t.Fatalf("part %d of %d: %v", len(r.parts), rounds*len(names), r.err)
	}
	return r.parts
}

func costOfC(t *testing.T, p Program, size Size, create func(t testing.TB) Costed) (parts []int) {
	d := create(t)
	c := p.NewC(t, d.Name)
	c.Create(size, 0)
	count := func(s *stepper) error { return s.ofC(c.PID(), p.Driver) }
	parts = measure(t, c.PID(), count, func() { d.run(c) })
	c.End()
	return parts
}

// costOfGo runs the test in a copy of this process. It also returns which functions the instructions are of.
func costOfGo(t *testing.T) (parts []int, functions []map[string]int) {
	c := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	c.Env = append(os.Environ(), inCopy+"=1", "GOGC=off", "GODEBUG=asyncpreemptoff=1")
	tid, theirs, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer tid.Close()
	c.ExtraFiles = []*os.File{theirs}
	in, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	c.Stdout, c.Stderr = &out, &out
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	if err := theirs.Close(); err != nil {
		t.Fatal(err)
	}
	var id int
	if _, err := fmt.Fscan(bufio.NewReader(tid), &id); err != nil {
		t.Fatalf("%v: %v\n%s", err, c.Wait(), out.String())
	}
	var of *stepper
	count := func(s *stepper) error {
		of = s
		s.ofGo()
		return s.freeze(c.Process.Pid)
	}
	parts = measure(t, id, count, func() { _ = in.Close() })
	if err := c.Wait(); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	return parts, of.functions
}

// runCopy is what the copy does.
func runCopy(t *testing.T, p Program, size Size, create func(t testing.TB) Costed) {
	runtime.LockOSThread()
	d := create(t)
	g := p.NewGo(t, d.Name)
	g.Create(size, 0)
	out := os.NewFile(3, "tid")
	if _, err := fmt.Fprintln(out, unix.Gettid()); err != nil {
		t.Fatal(err)
	}
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(os.Stdin); err != nil { // until the process is traced
		t.Fatal(err)
	}
	d.run(g)
}
