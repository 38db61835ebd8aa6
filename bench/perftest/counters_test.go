package perftest

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestCounters checks that each report is followed by the increase of the counters, whatever else is printed.
func TestCounters(t *testing.T) {
	devices := t.TempDir()
	port := filepath.Join(devices, "rxe0", "ports", "1")
	set := func(name, text string) {
		file := filepath.Join(port, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o700), os.WriteFile(file, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	set("counters/sent", "100\n")
	set("hw_counters/lost", "18446744073709551615\n")
	begin := func(names string) (*Options, *strings.Builder, error) {
		o := normalized(t, "send_bw", "-W", names, "--output=bandwidth")
		out := new(strings.Builder)
		o.out, o.device = out, "rxe0"
		return o, out, o.openCounters(devices)
	}
	o, out, err := begin("counters/sent,hw_counters/lost")
	if err != nil {
		t.Fatal(err)
	}
	set("counters/sent", "107\n")
	o.printBandwidth(bwReport{avg: 1.5})
	set("counters/sent", "1000\n")
	o.Bandwidth = false
	o.printLatency(latencyFigures{avg: 2})
	const want = "1.500000\n\tcounters/sent=7\n\thw_counters/lost=0\n\n" +
		"2.000000\n\tcounters/sent=893\n\thw_counters/lost=0\n\n"
	if out.String() != want || o.outputErr != nil {
		t.Errorf("%q, %v; want %q", out, o.outputErr, want)
	}
	if err := os.Remove(filepath.Join(port, "counters/sent")); err != nil {
		t.Fatal(err)
	}
	o.printLatency(latencyFigures{})
	if !errors.Is(o.outputErr, os.ErrNotExist) {
		t.Errorf("of a counter that is gone: %v", o.outputErr)
	}
	set("text", "4: ACTIVE\n")
	for name, want := range map[string]string{"text": `is not a counter: it contains "4: ACTIVE\n"`,
		"none": "-W here: open "} {
		if _, _, err := begin(name); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
