package perftest

import (
	"io"
	"strings"
	"testing"
)

// Errors for attributes that the device does not have name those that it has.
func TestMissingAttributes(t *testing.T) {
	for command, want := range map[string]string{
		"send_lat -x 7": "-x here: port 1 of pair0 has no GID of index 7; it has 0 (fe80::1, RoCE v1), 1 " +
			"(fe80::1, RoCE v2), 2 (192.0.2.1, RoCE v2)",
		"send_lat -i 3":          "-i here: uverbs: query port on pair0: port 3 is out of range: the device has ports 1 to 1",
		"send_lat -m 4096":       "-m here: port 1 has an active MTU of 1024",
		"send_lat -c UD -s 2048": "-s here: 2048 bytes are more than 1024, the MTU",
		"read_lat -o 17":         "-o here: pair0 supports at most 16 outstanding READs",
	} {
		f := strings.Fields(command)
		p := newPair()
		if err := run(t.Context(), normalized(t, f[0], f[1:]...), io.Discard, p.cards[0].open); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", command, err, want)
		}
		p.cards[0].close(t)
	}
	p := newPair()
	p.cards[0].Ports[0].State = 1
	if err := run(t.Context(), normalized(t, "send_lat"), io.Discard, p.cards[0].open); err == nil ||
		!strings.Contains(err.Error(), "-i here: port 1 of pair0 is in state down: bring its link up") {
		t.Error(err)
	}
	p.cards[0].close(t)
}

// Errors of creating an object name the options that determine its size.
func TestExplainSizes(t *testing.T) {
	for command, want := range map[string]string{
		"send_bw -I 1024":            ": the size follows from -t 128, -r 512 and -I 1024, queue pair 1 of -q 1",
		"send_bw -q 50 -n 100":       ": the size follows from -t 100 for each of -q 50",
		"send_bw -q 5 -r 1000 -t 10": ": the size follows from -r 1000 for each of -q 5",
		"send_bw -X 9 -e":            ": the size follows from -t 128 for each of -q 1 and -X 9",
	} {
		f := strings.Fields(command)
		p := newPair()
		o := normalized(t, f[0], f[1:]...)
		dev, err := openDevice(o, p.cards[0].open)
		if err != nil {
			t.Fatal(err)
		}
		e := &endpoint{o: o, dev: dev}
		if err = e.prepareObjects(); err == nil {
			err = e.createQPs()
		}
		if err == nil || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("%s: %v, want %s", command, err, want)
		}
		if err := e.close(); err != nil {
			t.Error(err)
		}
		p.cards[0].close(t)
	}
}
