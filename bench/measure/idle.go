package measure

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	idleTime   = 20 * time.Second // that is measured
	settleTime = 2 * time.Second  // until what connecting has started has ended
)

// beside prints what n idle connections of a level take, and what small messages cost beside them. A goroutine waits
// for a message of each. Their clients are in another process, which is this program with -dial.
func beside(w io.Writer, l *Level, n, rounds int) error {
	if l.DialAt == nil {
		return errors.Join(errors.New("this level has no idle connections"), l.close())
	}
	clients := exec.Command("/proc/self/exe", append(os.Args[1:], "-dial", l.Addr)...)
	clients.Stderr = os.Stderr
	stdin, err := clients.StdinPipe()
	if err != nil {
		return err
	}
	stdout, err := clients.StdoutPipe()
	if err != nil {
		return err
	}
	if err := clients.Start(); err != nil {
		return err
	}
	if _, err = bufio.NewReader(stdout).ReadString('\n'); err == nil {
		err = printIdle(w)
	}
	if err == nil {
		runtime.GOMAXPROCS(1)
		err = costs(w, []*Level{l}, rounds, func(l *Level) []operation {
			return slices.DeleteFunc(l.operations(), func(o operation) bool { return o.name != "small" })
		})
	}
	return errors.Join(err, l.close(), stdin.Close(), clients.Wait())
}

// dialIdle connects n connections to the level of another process, prints a line, and returns when standard input ends.
// The end of the process closes the connections.
func dialIdle(l *Level, addr string, n int) error {
	for range n {
		if _, err := l.DialAt(addr); err != nil {
			return err
		}
	}
	fmt.Println("connected")
	_, err := io.Copy(io.Discard, os.Stdin)
	return err
}

// printIdle prints what the process uses while nothing happens: its CPU time in nanoseconds, and how often its threads
// go to sleep, both in a second; threads, and goroutines.
func printIdle(w io.Writer) error {
	<-time.After(settleTime)
	_, switches, err := threads()
	if err != nil {
		return err
	}
	cpu, err := cpuTime()
	if err != nil {
		return err
	}
	began := time.Now()
	<-time.After(idleTime)
	took := time.Since(began).Seconds()
	after, err := cpuTime()
	if err != nil {
		return err
	}
	n, more, err := threads()
	_, printErr := fmt.Fprintf(w, "idle.cpu %.0f\nidle.switches %.2f\nidle.threads %d\nidle.goroutines %d\n",
		float64(after-cpu)/took, float64(more-switches)/took, n, runtime.NumGoroutine())
	return errors.Join(err, printErr)
}

// threads returns the number of threads, and how often they have gone to sleep.
func threads() (n, switches int, err error) {
	files, err := filepath.Glob("/proc/self/task/*/status")
	if err != nil {
		return 0, 0, err
	}
	for _, file := range files {
		status, err := os.ReadFile(file)
		if err != nil {
			return 0, 0, err
		}
		_, after, _ := strings.Cut(string(status), "\nvoluntary_ctxt_switches:")
		line, _, _ := strings.Cut(after, "\n")
		count, err := strconv.Atoi(strings.TrimSpace(line))
		if err != nil {
			return 0, 0, err
		}
		switches += count
	}
	return len(files), switches, nil
}
