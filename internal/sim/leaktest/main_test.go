package leaktest

import (
	"errors"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/internal/leak"
	"golang.org/x/sys/unix"
)

// childVar turns the test binary into a child that leaks the kind of resource
// that its value names.
const childVar = "GOVERBS_LEAKTEST_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(childVar) != "" {
		Main(m)
	}
	os.Exit(m.Run())
}

// TestChild leaks in the child, and does nothing in the parent.
func TestChild(t *testing.T) {
	switch os.Getenv(childVar) {
	case "nothing":
		leak.Track("thing", "released").Done()
	case "ticket":
		leakTicket()
	case "descriptor":
		if _, err := unix.Open("/dev/zero", unix.O_RDONLY|unix.O_CLOEXEC, 0); err != nil {
			t.Fatal(err)
		}
	case "eventfd":
		for range 2 { // one could be taken for the runtime's
			if _, err := unix.Eventfd(0, unix.EFD_CLOEXEC); err != nil {
				t.Fatal(err)
			}
		}
	case "goroutine":
		go leakGoroutine(make(chan bool))
	case "failure":
		leakTicket()
		t.Error("and it fails")
	}
}

func leakTicket() { leak.Track("ring of", "CQ 7") }

func leakGoroutine(c chan bool) { <-c }

func TestMainReports(t *testing.T) {
	for kind, tc := range map[string]struct {
		code int
		want []string
	}{
		"nothing":    {0, nil},
		"ticket":     {exitLeaked, []string{"leak: ring of CQ 7, created at", "leaktest.leakTicket", "main_test.go:"}},
		"descriptor": {exitLeaked, []string{"leak: descriptor ", " of /dev/zero"}},
		"eventfd":    {exitLeaked, []string{"leak: descriptor ", " of anon_inode:[eventfd]"}},
		"goroutine":  {exitLeaked, []string{"leak: goroutines", "leaktest.leakGoroutine", "created by"}},
		"failure":    {1, []string{"leak: ring of CQ 7", "and it fails"}},
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			cmd := exec.Command(os.Args[0], "-test.run=^TestChild$")
			cmd.Env = append(os.Environ(), childVar+"="+kind)
			out, err := cmd.CombinedOutput()
			code := 0
			var exit *exec.ExitError
			if errors.As(err, &exit) {
				code = exit.ExitCode()
			} else if err != nil {
				t.Fatal(err)
			}
			if code != tc.code {
				t.Errorf("exit code %d, want %d", code, tc.code)
			}
			for _, s := range tc.want {
				if !strings.Contains(string(out), s) {
					t.Errorf("the report lacks %q", s)
				}
			}
			if tc.want == nil && strings.Contains(string(out), "leak:") {
				t.Error("a leak is reported")
			}
			if t.Failed() {
				t.Logf("%s", out)
			}
		})
	}
}

func TestAdded(t *testing.T) {
	const poll, event = "anon_inode:[eventpoll]", "anon_inode:[eventfd]"
	for name, tc := range map[string]struct {
		before, after map[string]string
		want          []string
	}{
		"nothing":      {map[string]string{"0": "a"}, map[string]string{"0": "a"}, nil},
		"closed":       {map[string]string{"0": "a", "1": "b"}, map[string]string{"0": "a"}, nil},
		"another file": {map[string]string{"3": "a"}, map[string]string{"3": "b"}, []string{"3 of b"}},
		"the poller":   {nil, map[string]string{"3": poll, "4": event}, nil},
		"two pollers":  {nil, map[string]string{"3": poll, "4": poll}, []string{"? of " + poll}},
		"one more eventfd": {map[string]string{"3": poll, "4": event}, map[string]string{"3": poll, "4": event, "5": event},
			[]string{"5 of " + event}},
		"sorted": {nil, map[string]string{"5": "x", "4": "y"}, []string{"4 of y", "5 of x"}},
	} {
		got := added(tc.before, tc.after)
		if name == "two pollers" && len(got) == 1 {
			got[0] = "?" + got[0][1:] // either of them
		}
		if !slices.Equal(got, tc.want) {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}
