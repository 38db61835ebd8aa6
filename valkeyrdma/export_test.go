package valkeyrdma

import (
	"context"
	"net"
	"sync"
	"time"
)

// These are causes and limits that tests look for.
var (
	ErrNotReceived = errNotReceived
	ErrPeerSilent  = errPeerSilent
)

// HoldPoll makes the next call that waits hold its completions until goOn is closed. Begun is closed when a call waits,
// polled when it has completions, and waits when Close waits for it.
func HoldPoll(conn net.Conn) (begun, polled, waits <-chan struct{}, goOn chan<- struct{}) {
	c := conn.(*Conn)
	c.mu.Lock()
	defer c.mu.Unlock()
	leads, held, closing, released := make(chan struct{}), make(chan struct{}), make(chan struct{}), make(chan struct{})
	poll := c.waiters.Poll
	var first, completions sync.Once
	c.waiters.Poll = func(ctx context.Context) (int, error) {
		first.Do(func() { close(leads) })
		n, err := poll(ctx)
		if n > 0 {
			completions.Do(func() {
				close(held)
				<-released
			})
		}
		return n, err
	}
	c.leaderDone.L = &unlocks{Mutex: &c.mu, unlocked: closing}
	return leads, held, closing, released
}

// unlocks closes a channel when it is unlocked first.
type unlocks struct {
	*sync.Mutex
	once     sync.Once
	unlocked chan struct{}
}

func (u *unlocks) Unlock() {
	u.once.Do(func() { close(u.unlocked) })
	u.Mutex.Unlock()
}

// Probe does what the timer of KeepAlive does.
func Probe(conn net.Conn) { conn.(*Conn).probe() }

// ProbeInClose is Probe as if the timer ran while Close releases the memory. It returns how many bytes have arrived.
func ProbeInClose(conn net.Conn) int {
	c := conn.(*Conn)
	set := func(closed bool) int {
		c.mu.Lock()
		defer c.unlock()
		c.closed = closed
		return c.filled
	}
	set(true)
	c.probe()
	return set(false)
}

// FireTimer makes the timer of KeepAlive run now.
func FireTimer(conn net.Conn) { conn.(*Conn).timer.Reset(0) }

// TimerInterval returns how often the timer runs with a KeepAlive.
func TimerInterval(d time.Duration) (time.Duration, error) {
	config, err := Config{KeepAlive: d}.complete()
	if err != nil {
		return 0, err
	}
	return config.interval(), nil
}

// SendKeepAlives sends n commands.
func SendKeepAlives(conn net.Conn, n int) {
	c := conn.(*Conn)
	c.mu.Lock()
	defer c.unlock()
	for range n {
		c.sendCommand(command{op: opKeepAlive}, false)
	}
}

// FailInline makes requests of up to n bytes fail, which are more than the device takes inline.
func FailInline(conn net.Conn, n int) {
	c := conn.(*Conn)
	c.mu.Lock()
	defer c.unlock()
	c.inline = n
}

// Unconfirmed returns how many messages the peer may have no receive for any more.
func Unconfirmed(conn net.Conn) int {
	c := conn.(*Conn)
	c.mu.Lock()
	defer c.unlock()
	return int(c.sent - c.confirmed)
}
