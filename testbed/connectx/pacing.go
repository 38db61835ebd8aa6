package connectx

import (
	"github.com/goverbs/goverbs/internal/sim/connectx/engine"
	"github.com/goverbs/goverbs/internal/sim/connectx/prm"
)

// pacingCommands are the commands of packet pacing.
var pacingCommands = []command{
	{0x780, "SET_PP_RATE_LIMIT", prm.SetRateIn, prm.SetRateOut, inEth, (*Device).setRate},
}

// Rates are in kb/s.
const (
	rates   = 128 // size of the table. Entry 0 is no rate
	minRate = 1
	maxRate = 100_000_000
)

// offeredPacing are capabilities of packet pacing, which is for raw packets. With packet_pacing_uid, users have rates
// of their own.
var offeredPacing = []Capability{
	{CapGeneral, prm.HCACapQos, 1},
	{CapQoS, prm.QoSCapPacketPacing, 1},
	{CapQoS, prm.QoSCapPacketPacingBurstBound, 1},
	{CapQoS, prm.QoSCapPacketPacingTypicalSize, 1},
	{CapQoS, prm.QoSCapPacketPacingUID, 1},
	{CapQoS, prm.QoSCapPacketPacingMaxRate, maxRate},
	{CapQoS, prm.QoSCapPacketPacingMinRate, minRate},
	{CapQoS, prm.QoSCapPacketPacingRateTableSize, rates},
}

// setRate sets an entry of the table of rates. A rate of 0 clears it; queues that refer to it then have no limit.
func (d *Device) setRate(in, out []byte) error {
	index, c := uint16(prm.SetRateInIndex.Get(in)), prm.SetRateInRate.Bytes(in)
	if err := d.checkRate(userOf(in), index, c); err != nil {
		return err
	}
	r := engine.Rate{Limit: get32(prm.RateLimit, c), Burst: get32(prm.RateBurstUpperBound, c)}
	if err := d.hca.SetRate(index, r); err != nil {
		return err
	}
	if r.Limit == 0 {
		delete(d.rates, index)
	} else {
		d.rates[index] = userOf(in)
	}
	return nil
}

// checkRate checks a user's command that sets an entry.
func (d *Device) checkRate(user, index uint16, c []byte) error {
	qos := d.caps.page(CapQoS, true)
	if d.caps.general(prm.HCACapQos) == 0 || !prm.QoSCapPacketPacing.Is(qos) {
		return refuse(statusBadOpcode, reasonCapability)
	}
	owner, set := d.rates[index]
	limit := prm.RateLimit.Get(c)
	switch {
	case index == 0 || uint64(index) >= prm.QoSCapPacketPacingRateTableSize.Get(qos):
		return refuse(statusBadParam, reasonIndex)
	case set && owner != user && !privileged(user):
		return refuse(statusBadResource, reasonOwner)
	case limit != 0 && (limit < prm.QoSCapPacketPacingMinRate.Get(qos) ||
		limit > prm.QoSCapPacketPacingMaxRate.Get(qos)):
		return refuse(statusBadParam, reasonSize)
	case prm.RateBurstUpperBound.Is(c) && !prm.QoSCapPacketPacingBurstBound.Is(qos),
		prm.RateTypicalPacketSize.Is(c) && !prm.QoSCapPacketPacingTypicalSize.Is(qos):
		return refuse(statusBadParam, reasonCapability)
	}
	return nil
}

// rateIndex decodes the rate in the context of a user's send queue. 0 means none.
func (d *Device) rateIndex(user uint16, c []byte) (uint16, error) {
	index := uint16(prm.SQCPacketPacingRateLimitIndex.Get(c))
	owner, set := d.rates[index]
	switch {
	case index == 0 || set && (privileged(user) || owner == user || owner == sharedUser):
		return index, nil
	case set:
		return 0, refuse(statusBadResource, reasonOwner)
	}
	return 0, refuse(statusBadResource, reasonIndex)
}
