package perftest

import (
	"strings"
	"testing"
	"time"

	"github.com/goverbs/goverbs/internal/uapi"
	"github.com/goverbs/goverbs/uverbs"
)

// TestPacer checks when messages are posted: in bursts at fixed times, also after a burst that began late.
func TestPacer(t *testing.T) {
	at := int64(0)
	p := &pacer{gap: 100, burst: 10, clock: func() int64 { return at }}
	posted := func(list int) (n int) {
		for ; p.allows() && n < 100; n += list {
			p.posted(list)
		}
		return n
	}
	for _, c := range []struct {
		at   int64
		list int
		want int
	}{{0, 1, 10}, {99, 1, 0}, {100, 4, 12}, {199, 1, 0}, {350, 1, 20}, {399, 1, 0}, {400, 5, 10}} {
		at = c.at
		if got := posted(c.list); got != c.want {
			t.Errorf("at %d, in lists of %d: %d messages, want %d", c.at, c.list, got, c.want)
		}
	}
	p = nil
	if p.posted(5); !p.allows() {
		t.Error("without a limit, messages wait")
	}
}

// TestBurstGap checks the time between bursts for each unit of the rate.
func TestBurstGap(t *testing.T) {
	for args, want := range map[string]time.Duration{
		"-s 1000":                                0,
		"-s 1000 --rate_limit=8 --burst_size=10": 10 * time.Microsecond,
		"-s 1000 --rate_limit=8 --rate_units=g --burst_size=10 -t 20":  10 * time.Microsecond,
		"-s 1024 --rate_limit=1 --rate_units=M --burst_size=1":         time.Second / 1024,
		"-s 1024 --rate_limit=20 --rate_units=p":                       6400 * time.Millisecond, // tx-depth
		"-s 1000 --rate_limit=0.5 --rate_units=p --burst_size=2 -l 10": 4 * time.Second,
	} {
		o := normalized(t, "write_bw", strings.Fields(args)...)
		if got := o.burstGap(o.Size); got != want {
			t.Errorf("%s: %v, want %v", args, got, want)
		}
		if v := newWatchdog(t.Context(), &stateWire{}, o, o.Size, 1, nil); v.gap != want+o.span(o.Size) {
			t.Errorf("%s: the watchdog waits for %v", args, v.gap)
		} else {
			v.stop()
		}
	}
}

// TestFitRate checks which limiter is used on which port.
func TestFitRate(t *testing.T) {
	const ib, eth = uverbs.LinkInfiniBand, uverbs.LinkEthernet
	for _, c := range []struct {
		args    string
		link    uverbs.LinkLayer
		mbps    int // of the device's limit
		limiter Limiter
		err     string
	}{
		{"", ib, 0, "", ""},
		{"--rate_limit=10", ib, 10000, "", ""},
		{"--rate_limit=2.5 --rate_limit_type=HW -c UC", ib, 2500, HardwareLimiter, ""},
		{"--rate_limit=100 --rate_limit_type=HW -e", ib, 103125, HardwareLimiter, ""},
		{"--rate_limit=298.0232238769531 --rate_units=M", ib, 2500, "", ""},
		{"--rate_limit=10 --rate_limit_type=SW", ib, 0, SoftwareLimiter, ""},
		{"--rate_limit=10", eth, 0, SoftwareLimiter, ""},
		{"--rate_limit=11", ib, 0, SoftwareLimiter, ""},
		{"--rate_limit=10 --rate_units=p", ib, 0, SoftwareLimiter, ""},
		{"--rate_limit=10 -R", ib, 0, SoftwareLimiter, ""},
		{"--rate_limit=10 --rate_limit_type=HW", eth, 0, "",
			"only ports of InfiniBand limit the rate of a queue pair: choose SW"},
		{"--rate_limit=11 --rate_limit_type=HW", ib, 0, "", "devices have the rates of InfiniBand only"},
		{"--rate_limit=10 --rate_limit_type=HW --rate_units=p", ib, 0, "", "devices limit bytes, not messages"},
		{"--rate_limit=10 --rate_limit_type=HW -c UD", ib, 0, "", "devices limit the rate of RC and UC"},
	} {
		o := normalized(t, "send_bw", strings.Fields(c.args)...)
		o.link = c.link
		err := o.fitRate(nil)
		if (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s on %v: %v, want %q", c.args, c.link, err, c.err)
		}
		if err == nil && (o.Limiter != c.limiter || o.staticRate.Mbps() != c.mbps) {
			t.Errorf("%s on %v: limiter %q, %d Mb/s", c.args, c.link, o.Limiter, o.staticRate.Mbps())
		}
		if software := o.pacer(64) != nil; err == nil && software != (c.limiter == SoftwareLimiter) {
			t.Errorf("%s on %v: bursts: %v", c.args, c.link, software)
		}
	}
	for name, mbps := range portRates {
		if uverbs.RateOfMbps(mbps) == uverbs.RatePort {
			t.Errorf("%s Gb/s is not a rate", name)
		}
	}
}

// TestLimitedRate runs a test whose bursts take 40 ms at least, and fewer messages than completions are requested for.
func TestLimitedRate(t *testing.T) {
	for _, command := range []string{
		"write_bw -n 50 -s 64 -Q 30 --rate_limit=1000 --rate_units=p --burst_size=10",
		"send_bw -n 50 -s 64 -b -q 2 -l 5 --rate_limit=2000 --rate_units=p --burst_size=20 --rate_limit_type=SW",
	} {
		began := time.Now()
		newPair().play(t, command)
		if took := time.Since(began); took < 40*time.Millisecond {
			t.Errorf("%s: %v", command, took)
		}
	}
}

// TestRateOfDevice checks that QPs get the rate, and that it is an error if a device leaves it out, unless the limiter
// may be the test's.
func TestRateOfDevice(t *testing.T) {
	for _, c := range []struct {
		limiter string
		keeps   bool
		err     string
	}{{"", true, ""}, {"", false, ""}, {" --rate_limit_type=HW", true, ""},
		{" --rate_limit_type=HW", false, "pair0 does not limit queue pairs to this rate: choose SW"}} {
		p := newPair()
		for _, card := range p.cards {
			card.Ports[0].LinkLayer, card.Ports[0].Flags = 1, 0
			card.OnQueryQP = func(_ uint32, r *uapi.IbUverbsQueryQpResp) {
				if c.keeps {
					r.Dest.StaticRate = card.rate
				}
			}
		}
		err := p.try(t, "write_bw -n 20 -q 2 --rate_limit=10 --burst_size=10"+c.limiter)
		if (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%+v: %v", c, err)
		}
		if rate := uverbs.Rate(p.cards[1].rate); rate.Mbps() != 10000 {
			t.Errorf("%+v: the client's QPs have %d Mb/s", c, rate.Mbps())
		}
	}
}
