package rsocket

import (
	"encoding/binary"
	"errors"

	"github.com/goverbs/goverbs/uverbs"
)

// mappings is a connection's part for memory that WriteAt reaches.
type mappings struct {
	table  []mapping // of the peer's memory
	mapMRs []*uverbs.MR
}

func (c *Conn) closeMappings() error {
	var errs []error
	for _, mr := range c.mapMRs {
		errs = append(errs, mr.Close())
	}
	return errors.Join(errs...)
}

// mapped takes entry i of the table, which the peer has written.
func (c *Conn) mapped(i, payload int) {
	if i >= c.config.Mappings || payload != mappingLen {
		c.fail(errBadBuffer)
		return
	}
	if c.table == nil {
		c.table = make([]mapping, c.config.Mappings)
	}
	c.table[i] = parseMapping(c.listMemory()[listEntries*sgeLen+i*mappingLen:], binary.NativeEndian)
}
