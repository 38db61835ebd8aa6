package prm

// The context of a rate limit.
var (
	Rate                  = layout("set_pp_rate_limit_context", 0x30)
	RateLimit             = Rate.field("rate_limit", 0x0, 0, 32) // in kb/s
	RateBurstUpperBound   = Rate.field("burst_upper_bound", 0x4, 0, 32)
	RateTypicalPacketSize = Rate.field("typical_packet_size", 0xa, 0, 16)
)

var (
	SetRateIn      = input("set_pp_rate_limit", 0x40)
	SetRateInIndex = SetRateIn.field("rate_limit_index", 0xa, 0, 16)
	SetRateInRate  = SetRateIn.nest("ctx", 0x10, Rate)
)

var SetRateOut = output("set_pp_rate_limit", 0x10)
