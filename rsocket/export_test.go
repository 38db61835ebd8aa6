package rsocket

import (
	"testing"

	"github.com/goverbs/goverbs/uverbs"
)

// CheckIdleLater checks whether c is idle as if twice its IdleTimeout had passed since the last check.
func CheckIdleLater(c *Conn) {
	c.mu.Lock()
	c.idleSince = c.idleSince.Add(-2 * c.config.IdleTimeout)
	c.mu.Unlock()
	c.checkIdle()
}

// Lingering returns the number of connections that Close has left to the background.
func Lingering() int { return int(lingering.Load()) }

// ConnMemory returns how much memory a connection counts with.
func ConnMemory(c Config) (int64, error) {
	full, err := c.complete()
	if err != nil {
		return 0, err
	}
	return full.memory(), nil
}

// MessagesAreSends makes connections of all devices use the messages of iWARP until the test ends.
func MessagesAreSends(t *testing.T) {
	before := isRNIC
	isRNIC = func(uverbs.Device) bool { return true }
	t.Cleanup(func() { isRNIC = before })
}
