package cm

import (
	"bytes"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/internal/ioctl"
	"github.com/goverbs/goverbs/internal/uapi"
	"github.com/goverbs/goverbs/uverbs"
	"golang.org/x/sys/unix"
)

// TestEventNames compares the names of event types with those of rdma_event_str(3), which has no name for the last two.
func TestEventNames(t *testing.T) {
	for typ := range EventUser {
		if s := typ.String(); !strings.HasPrefix(s, "RDMA_CM_EVENT_") {
			t.Errorf("event %d is %q", typ, s)
		}
	}
	for _, typ := range []EventType{EventUser, eventInternal, 20, 1<<32 - 1} {
		if s := typ.String(); s != "UNKNOWN EVENT" {
			t.Errorf("event %d is %q", typ, s)
		}
	}
}

// recordFrom returns a record with the bytes of an event of the kernel.
func recordFrom(i *ID, raw []byte) *record {
	r := &record{id: i}
	copy(ioctl.BytesOf(&r.raw), raw)
	return r
}

func rawEvent(typ EventType, status int32, param []byte) []byte {
	e := uapi.RdmaUcmEventResp{Event: uint32(typ), Status: uint32(status), Ece: uapi.RdmaUcmEce{VendorId: 3, AttrMod: 4}}
	copy(e.Param[:], param)
	return bytes.Clone(ioctl.BytesOf(&e))
}

// TestEventParams checks that each field of the parameters of events has the right value.
func TestEventParams(t *testing.T) {
	conn := uapi.RdmaUcmConnParam{QpNum: 1, Qkey: 2, PrivateDataLen: 3, Srq: 1, ResponderResources: 5, InitiatorDepth: 6,
		FlowControl: 1, RetryCount: 7, RnrRetryCount: 4}
	copy(conn.PrivateData[:], "abcdef")
	var e Event
	e.Type = EventEstablished
	rc := &ID{qpType: uverbs.RC}
	rc.decode(&e, &recordFrom(rc, rawEvent(EventEstablished, 0, ioctl.BytesOf(&conn))).raw)
	want := ConnParam{QPN: 1, QKey: 2, SRQ: true, ResponderResources: 5, InitiatorDepth: 6, FlowControl: true,
		RetryCount: 7, RNRRetryCount: 4}
	if e.Conn.QPN != want.QPN || e.Conn.QKey != want.QKey || !e.Conn.SRQ || e.Conn.ResponderResources != 5 ||
		e.Conn.InitiatorDepth != 6 || !e.Conn.FlowControl || e.Conn.RetryCount != 7 || e.Conn.RNRRetryCount != 4 ||
		string(e.PrivateData) != "abc" {
		t.Errorf("%+v; want %+v", e, want)
	}
	ud := uapi.RdmaUcmUdParam{QpNum: 1, Qkey: 2, PrivateDataLen: 3,
		AhAttr: uapi.IbUverbsAhAttr{IsGlobal: 1, PortNum: 4, Dlid: 5, Sl: 6, SrcPathBits: 7, StaticRate: 8,
			Grh: uapi.IbUverbsGlobalRoute{Dgid: [16]byte{9}, FlowLabel: 10, SgidIndex: 11, HopLimit: 12, TrafficClass: 13}}}
	copy(ud.PrivateData[:], "abcdef")
	e = Event{Type: EventEstablished}
	dg := &ID{qpType: uverbs.UD}
	dg.decode(&e, &recordFrom(dg, rawEvent(EventEstablished, 0, ioctl.BytesOf(&ud))).raw)
	if e.UD != (UDParam{QPN: 1, QKey: 2, AH: uverbs.AHAttr{IsGlobal: true, Port: 4, DLID: 5, SL: 6, SrcPathBits: 7,
		StaticRate: 8, DGID: uverbs.GID{9}, FlowLabel: 10, SGIDIndex: 11, HopLimit: 12, TrafficClass: 13}}) ||
		string(e.PrivateData) != "abc" {
		t.Errorf("%+v", e)
	}
	e = Event{Type: EventUser}
	rc.decode(&e, &recordFrom(rc, rawEvent(EventUser, 0, []byte{1, 0, 0, 0, 0, 0, 0, 2})).raw)
	if e.Arg != 2<<56|1 {
		t.Errorf("argument %#x", e.Arg)
	}
}

// FuzzEvent checks that any bytes of the kernel become an event whose Err can be called, or no event, for ids of both
// kinds and for a membership.
func FuzzEvent(f *testing.F) {
	long := bytes.Repeat([]byte{0xff}, 304)
	for typ := range EventType(22) {
		f.Add(rawEvent(typ, 0, nil), false)
		f.Add(rawEvent(typ, -int32(unix.ETIMEDOUT), long), true)
		f.Add(rawEvent(typ, 28, long), false)
		f.Add(rawEvent(typ, -1<<31, nil), true)
	}
	f.Add([]byte{1, 2, 3}, false)
	newRig(f)
	f.Fuzz(func(t *testing.T, raw []byte, datagrams bool) {
		ps := PSTCP
		if datagrams {
			ps = PSUDP
		}
		ch := good(NewEventChannel())(t)
		i := good(ch.CreateID(ps))(t)
		rec := recordFrom(i, raw)
		rec.node, rec.raw.Id = &ch.node, 1<<31 // not the number of any id
		e := i.process(rec)
		if e != nil {
			_ = e.Err()
			if len(e.PrivateData) > 255 {
				t.Errorf("%d bytes of private data", len(e.PrivateData))
			}
			if e.Type == EventRejected && e.Err() == nil {
				t.Error("a rejection is no error")
			}
		}
		m := &Membership{id: i, name: "group"}
		rec.mc = m
		if e := i.process(rec); e == nil || e.Membership != m {
			t.Errorf("event of a membership: %+v", e)
		} else {
			_ = e.Err()
		}
		check(t, i.Close())
		if e := i.process(rec); e != nil {
			t.Errorf("event of a closed id: %+v", e)
		}
		check(t, ch.Close())
	})
}

// TestTruncatedRecord checks that the fields that an older kernel's shorter record lacks are zero.
func TestTruncatedRecord(t *testing.T) {
	const head = 20 // uid, id, event, status
	whole := rawEvent(EventEstablished, 0, bytes.Repeat([]byte{1}, 304))
	i := &ID{qpType: uverbs.RC}
	for n := head; n < len(whole); n++ {
		e := i.process(recordFrom(i, whole[:n]))
		switch {
		case e == nil, e.Err() != nil:
			t.Fatalf("%d bytes: %+v", n, e)
		case n < len(whole)-4 && e.ECE.Options != 0, n == head && (e.Conn.QPN != 0 || e.PrivateData != nil):
			t.Errorf("%d bytes: %+v", n, e)
		}
	}
}
