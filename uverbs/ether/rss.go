package ether

import (
	"errors"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/driver"
	"github.com/goverbs/goverbs/uverbs"
)

// An RSSConfig describes a raw packet QP that distributes packets over the WQs of a table by a hash
// of their headers: struct ibv_rx_hash_conf.
type RSSConfig struct {
	Table    *RWQIndTable
	Function RSSFunction
	Key      []byte    // key of the hash, 40 bytes
	Fields   RSSFields // 0 for no hash, with a table of one WQ
}

// CreateRSSQP creates a QP that distributes packets over WQs: ibv_create_qp_ex(3). Such a QP has no
// queues, no CQs and no state. Flows lead to it, and receives are posted to the WQs. CreateRSSQP
// returns uverbs.ErrInvalid if the configuration contradicts itself, uverbs.ErrNotSupported if the
// device has no raw packets, uverbs.ErrClosed after Close of the PD or the table, and an error that
// matches os.ErrPermission without CAP_NET_RAW.
func CreateRSSQP(p *uverbs.PD, cfg RSSConfig) (*uverbs.QP, error) {
	const op = "create QP"
	switch {
	case cfg.Table == nil:
		return nil, invalid(op, p.String(), "Table is nil")
	case cfg.Table.ctx != p.Context():
		return nil, invalid(op, p.String(), cfg.Table.String()+" belongs to another Context than the PD")
	}
	q, err := driver.CreateRSS(p, &driver.RSSConfig{Table: cfg.Table.life, Handle: driver.HandleOf(cfg.Table.life),
		Function: uint8(cfg.Function), Key: slices.Clone(cfg.Key), Fields: uint64(cfg.Fields)})
	if err != nil {
		return nil, explained(err, cfg.explain)
	}
	return q.(*uverbs.QP), nil
}

// explain explains what in r the device does not support.
func (r *RSSConfig) explain(err error) string {
	const toeplitzKey = 40
	ip4, ip6 := r.Fields&(RSSSrcIPv4|RSSDstIPv4) != 0, r.Fields&(RSSSrcIPv6|RSSDstIPv6) != 0
	protocols := 0
	for _, f := range []RSSFields{RSSSrcPortTCP | RSSDstPortTCP, RSSSrcPortUDP | RSSDstPortUDP, RSSIPsecSPI} {
		if r.Fields&f != 0 {
			protocols++
		}
	}
	switch {
	case !errors.Is(err, unix.EINVAL):
	case r.Function == RSSToeplitz && len(r.Key) != toeplitzKey:
		return "Key has " + strconv.Itoa(len(r.Key)) + " bytes: a Toeplitz key has " + strconv.Itoa(toeplitzKey)
	case r.Fields&^RSSInner == 0 && r.Table.size > 1:
		return "Fields is 0: without a hash the table can have one WQ only"
	case ip4 && ip6:
		return "Fields has addresses of IPv4 and of IPv6: create a QP for each"
	case protocols > 1:
		return "Fields has fields of TCP, UDP or IPsec at once: create a QP for each"
	}
	return driver.ExplainRaw(err)
}
