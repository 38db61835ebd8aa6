//go:build vm

package vm

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
)

// relayModes has the modes of the guest's test binary, and the expected log of
// the host.
var relayModes = map[string][]string{
	"pass": {"--- PASS: X", "--- PASS: X/TestPass", "--- SKIP: X/TestSkip", "--- PASS: X/TestParallel/b",
		"running in 6.12", "line of c"},
	"fail":      {"--- FAIL: X", "--- FAIL: X/TestNested/one/two", "failed on purpose", "--- PASS: X/TestPass"},
	"panic":     {"--- FAIL: X", "--- FAIL: X/TestTrouble", "panic: on purpose"},
	"goroutine": {"--- FAIL: X", "--- FAIL: X/TestTrouble", "panic: in a goroutine, on purpose"},
	"exit":      {"--- FAIL: X", "--- FAIL: X/TestTrouble", "exit status 3"},
	"hang":      {"--- FAIL: X", "--- FAIL: X/TestTrouble", "panic: test timed out after 3s", "hanging"},
	"segfault":  {"--- FAIL: X", "--- FAIL: X/TestTrouble", "nil pointer dereference"},
	"late":      {"--- FAIL: X", "exit status 7", "--- PASS: X/TestTrouble"},
	"none":      {"--- FAIL: X", "ran no test"},
}

// relayHelper runs the binary in all modes, in one guest.
func relayHelper(t *testing.T) {
	g := Start(t, Config{Kernel: "6.12"})
	binary := BuildTest(t, "./testdata/guesttests", "", "")
	for mode := range relayModes {
		t.Run(mode, func(t *testing.T) {
			o := TestOptions{Env: []string{"GUESTTEST_MODE=" + mode}}
			switch mode {
			case "hang":
				o.Timeout = 3 * time.Second
			case "none":
				o.Args = []string{"-test.run=^$"}
			}
			status := RunTests(t, g, binary, o)
			t.Logf("%s: status %d", mode, status)
		})
	}
}

// TestRelay checks that the subtests have the results of the tests in the
// guest.
func TestRelay(t *testing.T) {
	out, err := helper(t, "relay").CombinedOutput()
	if err == nil {
		t.Error("failures in the guest are not reported")
	}
	log := string(out)
	for mode, wants := range relayModes {
		for _, want := range wants {
			name := "TestHelperProcess/" + mode
			want = strings.Replace(want, " X", " "+name, 1)
			if strings.HasPrefix(want, "---") {
				want += " ("
			}
			if !strings.Contains(log, want) {
				t.Errorf("mode %s: no %q", mode, want)
			}
		}
	}
	if t.Failed() {
		t.Logf("the log:\n%s", log)
	}
}

// TestHelperProcess is not a test: other tests run it as a process.
func TestHelperProcess(t *testing.T) {
	switch os.Getenv(envHelper) {
	case "be-killed":
		g := Start(t, Config{Kernel: "6.12"})
		fmt.Printf("qemu %d\nrun %s\n", g.qemu.cmd.Process.Pid, g.dir.path)
		<-g.Done()
	case "relay":
		relayHelper(t)
	}
}
