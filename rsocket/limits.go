package rsocket

import (
	"fmt"
	"net/netip"
	"os"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/internal/memlock"
	"github.com/goverbs/goverbs/internal/quota"
	"github.com/goverbs/goverbs/uverbs"
)

// A budget limits the memory that the connections of a listener register.
type budget struct {
	used *quota.Limit
	need int64 // of a connection
}

// budget returns the limits of a listener whose connections have a configuration.
func (lc *ListenConfig) budget(c *Config) (*budget, error) {
	need := c.memory()
	total, each := quota.MemoryLimits(lc.MaxMemory, lc.MaxMemoryPerPeer, memlock.Default(), need)
	for _, limit := range []struct {
		name  string
		value int64
	}{{"MaxMemory", total}, {"MaxMemoryPerPeer", each}} {
		if limit.value > 0 && limit.value < need {
			return nil, fmt.Errorf("%w: ListenConfig.%s is %d, and a connection needs %d bytes: raise it, or lower RecvBuffer, "+
				"SendBuffer, RecvQueue and SendQueue", uverbs.ErrInvalid, limit.name, limit.value, need)
		}
	}
	return &budget{quota.New(total, each), need}, nil
}

// memory returns about how many bytes of memory a connection registers. Adapters pin the queues, too.
func (c *Config) memory() int64 {
	page := os.Getpagesize()
	pages := func(n int) int64 { return int64((n + 2*page - 1) / page * page) } // it need not begin with one
	recv := c.RecvBuffer + listEntries*sgeLen + c.Mappings*mappingLen
	return pages(recv) + pages(c.SendBuffer+maxControls*controlLen) +
		memlock.Queues(c.SendQueue, c.RecvQueue+controlReceives, c.SendQueue+c.RecvQueue+controlReceives)
}

// admit counts the memory of a connection until it is closed. If it exceeds a limit, the error matches
// ErrServerLimit, with which the listener rejects the request.
func (b *budget) admit(m *cm.Conn) error {
	peer := m.RemoteAddr().Addr()
	if isIB(m) {
		peer = netip.AddrFrom16(m.ID().RemoteGID())
	}
	if err := b.used.Acquire(peer, b.need); err != nil {
		return quota.MemoryError(cm.ErrServerLimit, err, "ListenConfig")
	}
	m.Own(closerFunc(func() error {
		b.used.Release(peer, b.need)
		return nil
	}))
	return nil
}
