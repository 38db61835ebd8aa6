package devicetest

import (
	"errors"
	"testing"
	"time"

	"github.com/goverbs/goverbs/internal/sim/features"
	"github.com/goverbs/goverbs/uverbs"
	"github.com/goverbs/goverbs/uverbs/ether"
)

// TestDeviceParityTimestamp has the tests of tests/test_mlx5_timestamp.py. In Go every
// completion has the count of the device's clock. The tests of free-running
// timestamps check the count, those of real-time timestamps the time that WallClock
// converts it to.
func TestDeviceParityTimestamp(t *testing.T) {
	for name, run := range map[string]func(*testing.T){
		"test_timestamp_free_running_rc_traffic": func(t *testing.T) { stampRC(t, false) },
		"test_timestamp_real_time_rc_traffic":    func(t *testing.T) { stampRC(t, true) },
		"test_timestamp_free_running_send_raw_traffic": func(t *testing.T) {
			a, _, s := stampRaw(t)
			s.count(t, a.dev, s.sent)
		},
		"test_timestamp_free_running_recv_raw_traffic": func(t *testing.T) {
			_, b, s := stampRaw(t)
			s.count(t, b.dev, s.received)
		},
		"test_timestamp_real_time_raw_traffic": func(t *testing.T) {
			a, b, s := stampRaw(t)
			s.wall(t, a.dev, s.sent)
			s.wall(t, b.dev, s.received)
		},
		"test_query_rt_values": func(t *testing.T) {
			dev := openDevice(t)
			s := stamps{before: clock(t, dev), began: time.Now()}
			now := clock(t, dev)
			s.count(t, dev, now)
			s.wall(t, dev, now)
		},
	} {
		t.Run(name, run)
	}
}

// clock reads the device's clock. It skips the test if the device has none.
func clock(t testing.TB, dev *uverbs.Context) uint64 {
	t.Helper()
	count, err := dev.QueryClock()
	if errors.Is(err, uverbs.ErrNotSupported) {
		features.Missing(t, features.Clock, err)
	}
	check(t, err)
	return count
}

// stamps has the counts of the two completions of a message, and the count and the
// time before it was sent.
type stamps struct {
	before, sent, received uint64
	began                  time.Time
}

// count checks that a count lies between s.before and the present count.
func (s stamps) count(t testing.TB, dev *uverbs.Context, count uint64) {
	t.Helper()
	if after := clock(t, dev); count < s.before || count > after {
		t.Errorf("completed at %d, between %d and %d", count, s.before, after)
	}
}

// wall checks that a count converts to a time between s.began and now.
func (s stamps) wall(t testing.TB, dev *uverbs.Context, count uint64) {
	t.Helper()
	const slack = time.Minute // the kernel does not synchronize the two clocks
	if at := must(dev.WallClock(count))(t); at.Before(s.began.Add(-slack)) || at.After(time.Now().Add(slack)) {
		t.Errorf("completed at %v, between %v and %v", at, s.began, time.Now())
	}
}

func stampRC(t *testing.T, wall bool) {
	dev := openDevice(t)
	clock(t, dev) // skips the test if the device has no clock
	client, server := newPlayers(t, setup{})
	s := stamps{before: clock(t, dev), began: time.Now()}
	server.receive(t, 0)
	client.fill(t)
	client.post(t, 0, uverbs.SendWR{Opcode: uverbs.OpSend, SGL: client.outgoing()})
	sent, err := client.done(t)
	check(t, err)
	received, err := server.done(t)
	check(t, err)
	for _, wc := range []uverbs.WC{sent, received} {
		if wall {
			s.wall(t, dev, wc.Timestamp)
		} else {
			s.count(t, dev, wc.Timestamp)
		}
	}
}

// stampRaw sends a raw packet.
func stampRaw(t *testing.T) (client, server *tap, s stamps) {
	client, server = newRawTap(t, 0), newRawTap(t, 0)
	must(ether.CreateFlow(server.qp, ether.FlowAttr{Specs: []ether.FlowSpec{toRawMAC(rawMAC)}}))(t)
	s = stamps{before: clock(t, client.dev), began: time.Now()}
	server.listen(t, 1)
	frame := rawPacket{dst: rawMAC, payload: 1000}.frame()
	copy(client.mr.Bytes(), frame)
	post(t, client.qp, uverbs.SendWR{Opcode: uverbs.OpSend, Flags: uverbs.Signaled, Inline: frame[:18],
		SGL: []uverbs.SGE{client.mr.SGE(18, len(frame)-18)}})
	s.sent, s.received = client.next(t).Timestamp, server.next(t).Timestamp
	return client, server, s
}
