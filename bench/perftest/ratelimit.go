package perftest

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/goverbs/goverbs/internal/getopt"
	"github.com/goverbs/goverbs/uverbs"
)

// A Limiter is what limits the rate of messages in a bandwidth test.
type Limiter string

// The limiters.
const (
	SoftwareLimiter Limiter = "SW" // the test posts bursts of messages at the times that follow from the rate
	HardwareLimiter Limiter = "HW" // the device sends slower: RC and UC on InfiniBand
)

// portRates has the rates of InfiniBand in Mb/s by their names, which are in Gb/s.
var portRates = map[string]int{"2.5": 2500, "5": 5000, "10": 10000, "14": 14062, "20": 20000, "25": 25781, "28": 28125,
	"30": 30000, "40": 40000, "50": 53125, "56": 56250, "60": 60000, "80": 80000, "100": 103125, "112": 112500,
	"120": 120000, "168": 168750, "200": 206250, "300": 309375, "400": 425000, "600": 637500}

// rateTable returns the options of the limiter.
func (o *Options) rateTable() []getopt.Option {
	n := getopt.New
	return []getopt.Option{
		n(0, "rate_limit", "rate", "Set the maximum rate of sent messages, in Gb/s unless --rate_units is given", o.setRate),
		n(0, "rate_units", "units", "Set the units of the rate limit: MiB/s (M), Gb/s (g) or messages per second (p)",
			o.setRateUnits),
		n(0, "rate_limit_type", "type", "Limit the rate in the device (HW, on InfiniBand) or in the test (SW) "+
			"(default HW if possible)", o.setLimiter),
		n(0, "burst_size", "size", "Set the amount of messages that SW sends in a burst (default tx-depth)",
			getopt.Int(&o.BurstSize, 0, maxLength)),
	}
}

func (o *Options) setRate(value string) error {
	if setFloat(&o.RateLimit)(value) != nil || o.RateLimit == 0 {
		return fmt.Errorf("%q is not a number above 0", value)
	}
	return nil
}

func (o *Options) setRateUnits(value string) error {
	switch value {
	case "M", "g", "p":
		o.RateUnits = value
		return nil
	}
	return fmt.Errorf("%q is not one of M, g and p", value)
}

func (o *Options) setLimiter(value string) error {
	switch value {
	case string(SoftwareLimiter), string(HardwareLimiter):
		o.Limiter = Limiter(value)
		return nil
	case "PP":
		return errors.New("packet pacing (PP) is for " + rawEthernetTests + ": choose SW")
	}
	return fmt.Errorf("%q is not one of HW and SW", value)
}

// messagesPerSecond returns the rate for messages of a size.
func (o *Options) messagesPerSecond(size int) float64 {
	switch o.RateUnits {
	case "M":
		return o.RateLimit * (1 << 20) / float64(size)
	case "p":
		return o.RateLimit
	}
	return o.RateLimit * 1e9 / 8 / float64(size)
}

// burstGap returns the time from one burst to the next: 0 without a rate limit.
func (o *Options) burstGap(size int) time.Duration {
	if o.RateLimit == 0 {
		return 0
	}
	seconds := float64(o.BurstSize) / o.messagesPerSecond(size)
	return time.Duration(min(seconds, 2*maxSpan.Seconds()) * float64(time.Second))
}

// normalizeRate sets the size of a burst, and checks the options of the limiter.
func (o *Options) normalizeRate() error {
	switch {
	case o.RateLimit == 0 && o.Limiter != "":
		return here("--rate_limit_type", "there is no rate: add --rate_limit")
	case o.RateLimit == 0 && o.BurstSize > 0:
		return here("--burst_size", "there is no rate: add --rate_limit")
	case o.RateLimit > 0 && o.Events && o.Limiter != HardwareLimiter:
		return here("--rate_limit", "a test that limits the rate polls: leave out -e, or add --rate_limit_type=HW")
	case o.Limiter == HardwareLimiter && o.RDMACM:
		return here("--rate_limit_type", "rdma_cm sets the paths of the queue pairs: leave out -R, or choose SW")
	}
	if o.RateLimit > 0 && o.BurstSize == 0 {
		o.BurstSize = o.TxDepth
	}
	if gap := o.burstGap(o.Size); gap > maxSpan {
		return here("--rate_limit", "bursts of %d messages of %d bytes are more than %v apart: choose a higher rate, or a "+
			"smaller --burst_size", o.BurstSize, o.Size, maxSpan)
	}
	return nil
}

// fitRate decides which limiter is used.
func (o *Options) fitRate(*uverbs.Context) error {
	if o.RateLimit == 0 || o.Limiter == SoftwareLimiter {
		return nil
	}
	gbps := o.RateLimit
	if o.RateUnits == "M" {
		gbps = gbps * 8 * (1 << 20) / 1e9
	}
	rate := uverbs.RateOfMbps(portRates[strconv.FormatFloat(gbps, 'g', -1, 64)])
	switch {
	case o.link != uverbs.LinkInfiniBand:
		return o.limitInSoftware("only ports of InfiniBand limit the rate of a queue pair")
	case o.Type != uverbs.RC && o.Type != uverbs.UC || o.RDMACM:
		return o.limitInSoftware("devices limit the rate of RC and UC queue pairs, without -R")
	case o.RateUnits == "p":
		return o.limitInSoftware("devices limit bytes, not messages")
	case rate == uverbs.RatePort:
		return o.limitInSoftware("devices have the rates of InfiniBand only, such as 2.5, 5, 10 and 100 Gb/s")
	}
	o.staticRate = rate
	return nil
}

// limitInSoftware chooses the limiter of the test, unless the device's was required. Why says why the device does not
// limit the rate.
func (o *Options) limitInSoftware(why string) error {
	if o.Limiter == HardwareLimiter {
		return here("--rate_limit_type", "%s: choose SW", why)
	}
	o.Limiter, o.staticRate = SoftwareLimiter, uverbs.RatePort
	return nil
}

// checkRate checks that the device limits the rate of a QP, which drivers leave out if it does not have the rate.
func (e *endpoint) checkRate(q *queue) error {
	if e.o.staticRate == uverbs.RatePort {
		return nil
	}
	attr, err := q.qp.Query(uverbs.MaskAV)
	if err != nil {
		return err
	}
	if attr.AV.StaticRate != e.o.staticRate {
		return e.o.limitInSoftware(fmt.Sprintf("%s does not limit queue pairs to this rate", e.o.device))
	}
	return nil
}

// A pacer says when the messages of a limited rate are posted: in bursts, whose times do not depend on when the last
// one was posted. A nil pacer does not limit the rate.
type pacer struct {
	gap   int64 // ns from one burst to the next
	burst int   // messages
	next  int64 // when the next burst begins
	left  int   // messages of this burst
	clock func() int64
}

// pacer returns the pacer for messages of a size.
func (o *Options) pacer(size int) *pacer {
	if o.RateLimit == 0 || o.Limiter != SoftwareLimiter {
		return nil
	}
	return &pacer{gap: int64(o.burstGap(size)), burst: o.BurstSize, next: now(), clock: now}
}

// allows reports whether a message may be posted.
func (p *pacer) allows() bool {
	if p == nil || p.left > 0 {
		return true
	}
	if p.clock() < p.next {
		return false
	}
	p.next += p.gap
	p.left = p.burst
	return true
}

// posted counts messages.
func (p *pacer) posted(n int) {
	if p != nil {
		p.left -= n
	}
}
