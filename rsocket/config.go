package rsocket

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/uverbs"
)

// A Config has the sizes and times of connections. The zero value of each field stands for its default. The
// two sides of a connection may differ. Those defaults that librdmacm reads from a file in /etc/rdma/rsocket
// are read from there, once in a process.
type Config struct {
	// RecvBuffer is how many bytes the peer may send that were not read: 128 KiB by default (file
	// mem_default), 4 KiB to 1 GiB.
	RecvBuffer int
	// SendBuffer is how many bytes Write accepts that the peer has not received: 128 KiB by default (file
	// wmem_default), 4 KiB to 1 GiB.
	SendBuffer int
	// RecvQueue and SendQueue are how many messages may be on their way in each direction: 384 by default
	// (files rqsize_default, sqsize_default), 16 to 65534, and no more than the device permits.
	RecvQueue int
	SendQueue int
	// Inline is how many bytes of a Write need not be copied to the send buffer: 64 by default (file
	// inline_default), negative for none. The device may permit more.
	Inline int
	// Mappings is how many regions the peer may map for WriteAt: 0 by default (file iomap_size), at most
	// 32512.
	Mappings int
	// Polling is how long a call polls before it sleeps: see [uverbs.CQ.SetPolling]. Negative stands for not at all. By
	// default, it is what file polling_time says, or else the library chooses.
	Polling time.Duration

	// KeepAlive is how often this side asks the device of the peer for a sign of life while nothing else is
	// sent: 15 seconds by default, as in package net, negative for never. The device replies without the
	// peer's program. If it has not replied four times, the connection ends.
	KeepAlive time.Duration
	// IdleTimeout is how long the connection may last while nothing is sent or received but keepalives, up to an
	// eighth longer. Then it ends with [ErrIdle]. By default there is no limit. What peers write to mapped memory is
	// not seen before a message follows.
	IdleTimeout time.Duration
	// Linger is how long Close waits until the peer has received what was written, before it returns an error.
	// If it is 0, Close waits for at most 100 milliseconds, less if other connections wait in the background,
	// returns nil, and goes on in the background for at most 30 seconds. Programs that end after Close set it. If it
	// is negative, Close does not wait at all. A peer that does not get to know of the end in this time reads
	// ECONNRESET instead of io.EOF.
	Linger time.Duration
	// TOS is the type of service of the packets: see [cm.Options].
	TOS uint8

	// PD is the protection domain of the connections. Nil stands for one per connection, so that no peer
	// can reach the memory of another connection by guessing its keys.
	PD *uverbs.PD
}

const (
	minBuffer   = 4096
	maxBuffer   = 1 << 30
	minQueue    = 16
	maxQueue    = 0xfffe
	maxInline   = 1024 // less than lowWater
	maxMappings = 0x7f << 8

	defaultKeepAlive = 15 * time.Second
	closeTime        = 100 * time.Millisecond
	lingerTime       = 30 * time.Second // as long as devices send again before they give up
)

// complete returns a copy of c with the defaults filled in.
func (c *Config) complete() (*Config, error) {
	full, d := *c, fileDefaults()
	full.RecvBuffer = orDefault(full.RecvBuffer, d.RecvBuffer)
	full.SendBuffer = orDefault(full.SendBuffer, d.SendBuffer)
	full.RecvQueue = orDefault(full.RecvQueue, d.RecvQueue)
	full.SendQueue = orDefault(full.SendQueue, d.SendQueue)
	full.Inline = max(orDefault(full.Inline, d.Inline), 0)
	full.Mappings = orDefault(full.Mappings, d.Mappings)
	full.Polling = orDefault(full.Polling, d.Polling)
	full.KeepAlive = orDefault(full.KeepAlive, defaultKeepAlive)
	for _, f := range []struct {
		name          string
		value, lo, hi int
	}{
		{"RecvBuffer", full.RecvBuffer, minBuffer, maxBuffer},
		{"SendBuffer", full.SendBuffer, minBuffer, maxBuffer},
		{"RecvQueue", full.RecvQueue, minQueue, maxQueue},
		{"SendQueue", full.SendQueue, minQueue, maxQueue},
		{"Inline", full.Inline, 0, maxInline},
		{"Mappings", full.Mappings, 0, maxMappings},
	} {
		if f.value < f.lo || f.value > f.hi {
			return nil, fmt.Errorf("%w: Config.%s is %d: set it to %d to %d", uverbs.ErrInvalid, f.name, f.value, f.lo, f.hi)
		}
	}
	full.RecvBuffer = (full.RecvBuffer + 1) &^ 1 // it has two halves
	full.Mappings = unscale(scale(full.Mappings))
	return &full, nil
}

func orDefault[T int | time.Duration](n, d T) T {
	if n == 0 {
		return d
	}
	return n
}

// cm returns the options for package cm.
func (c *Config) cm() cm.Options {
	return cm.Options{PD: c.PD, OwnPD: c.PD == nil, TOS: c.TOS, Param: &cm.ConnParam{
		FlowControl: true, RetryCount: 7, RNRRetryCount: 7, // control messages need no receive: they wait for one
		ResponderResources: cm.NoReads, InitiatorDepth: cm.NoReads,
	}}
}

// fileDefaults returns the defaults of this machine.
var fileDefaults = sync.OnceValue(func() Config { return readDefaults("/etc/rdma/rsocket") })

// readDefaults returns the defaults of librdmacm, changed by the files in dir. As there, a file that does not exist
// or does not begin with a number changes nothing, and the nearest limit stands for a number out of range.
func readDefaults(dir string) Config {
	number := func(name string, def, lo, hi int) int {
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return def
		}
		n, ok := firstNumber(string(b))
		if !ok {
			return def
		}
		return min(max(n, lo), hi)
	}
	c := Config{
		Inline:     number("inline_default", 64, 0, maxInline),
		SendQueue:  number("sqsize_default", 384, minQueue, maxQueue),
		RecvQueue:  number("rqsize_default", 384, minQueue, maxQueue),
		RecvBuffer: number("mem_default", 1<<17, minBuffer, maxBuffer),
		SendBuffer: number("wmem_default", 1<<17, minBuffer, maxBuffer),
		Mappings:   number("iomap_size", 0, 0, maxMappings),
	}
	const absent = -1
	switch us := number("polling_time", absent, 0, math.MaxInt32); us {
	case absent:
	case 0:
		c.Polling = -1
	default:
		c.Polling = time.Duration(us) * time.Microsecond
	}
	return c
}

// firstNumber parses the number at the beginning of s, as scanf does. If it is too large, it is math.MaxInt.
func firstNumber(s string) (n int, ok bool) {
	s = strings.TrimPrefix(strings.TrimLeft(s, " \t\n\v\f\r"), "+")
	end := strings.IndexFunc(s, func(r rune) bool { return r < '0' || r > '9' })
	if end >= 0 {
		s = s[:end]
	}
	n, err := strconv.Atoi(s)
	return n, err == nil || errors.Is(err, strconv.ErrRange)
}
