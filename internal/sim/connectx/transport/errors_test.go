package transport

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/goverbs/goverbs/internal/sim/connectx/roce"
)

func request(op Op, n int, key uint32) *Request {
	return &Request{Op: op, Length: uint32(n), RKey: key, Imm: key, WQE: make([]byte, n)}
}

// TestRefusals checks that a refused request ends the connection at both ends,
// with the expected syndrome at the requester and the expected event at the
// responder.
func TestRefusals(t *testing.T) {
	const good, short, secret, gone = 1, 2, 3, 4
	for name, c := range map[string]struct {
		r      *Request
		change func(h *host)
		want   Syndrome
		theirs Syndrome // of the receive request
		event  string
	}{
		"key of a WRITE":    {request(Write, 300, gone), nil, RemoteAccess, Flushed, "broken 2"},
		"key of a READ":     {request(Read, 300, gone), nil, RemoteAccess, Flushed, "broken 2"},
		"key of an atomic":  {request(FetchAdd, 8, gone), nil, RemoteAccess, Flushed, "broken 2"},
		"bounds of a WRITE": {request(Write, 300, short), nil, RemoteAccess, Flushed, "broken 2"},
		"bounds of a READ":  {request(Read, 300, short), nil, RemoteAccess, Flushed, "broken 2"},
		"rights":            {request(Write, 1, secret), nil, RemoteInvalidRequest, Flushed, "broken 1"},
		"uneven atomic": {&Request{Op: CompareSwap, Length: 8, RKey: good, RemoteAddr: 4, WQE: make([]byte, 8)},
			nil, RemoteInvalidRequest, Flushed, "broken 1"},
		"key of an invalidate": {request(SendInval, 1, gone), nil, RemoteAccess, LocalAccess, "broken 0"},
		"short receive":        {request(Send, 11, 0), nil, RemoteInvalidRequest, LocalLength, "broken 0"},
		"short receive, later": {request(Send, 1000, 0), func(h *host) { h.recvs[0].WQE = make([]byte, 999) },
			RemoteInvalidRequest, LocalLength, "broken 0"},
		"bad receive": {request(Send, 1, 0), func(h *host) { h.receiveFault = LocalQPOp }, RemoteOp, LocalQPOp,
			"broken 0"},
		"no receive, for a fault": {request(Send, 1, 0), func(h *host) { h.receiveFault, h.recvs = LocalQPOp, nil },
			RemoteOp, OK, "broken 3"},
		"memory goes": {request(Read, 1000, good), func(h *host) { h.readFaultAt = 3 }, RemoteAccess, Flushed,
			"broken 2"},
		"READs are not served": {request(Read, 1, good),
			func(h *host) { c := h.e.Config(); c.MaxRespond = 0; h.e.Modify(c) }, RemoteInvalidRequest, Flushed, "broken 1"},
		"atomics are not served": {request(FetchAdd, 8, good),
			func(h *host) { c := h.e.Config(); c.MaxRespond = 0; h.e.Modify(c) }, RemoteInvalidRequest, Flushed, "broken 1"},
		"other path MTU": {request(Send, 300, 0), func(h *host) { c := h.e.Config(); c.MTU = 512; h.e.Modify(c) },
			RemoteInvalidRequest, Flushed, "broken 1"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, RC, nil)
				b := w.hosts[1]
				w.receive(1, 10)
				w.loop.Run(func() {
					b.memory[good], b.memory[short], b.memory[secret] = make([]byte, 1000), make([]byte, 299), make([]byte, 9)
					b.denied[secret] = RemoteInvalidRequest
					if c.change != nil {
						c.change(b)
					}
				})
				before := request(Write, 5, good)
				w.post(0, before, c.r, request(Write, 5, good))
				w.pass(time.Second)
				w.ends(0, OK, c.want, Flushed)
				w.wantEvents(1, c.event)
				w.loop.Run(func() {
					if c.theirs != OK && (len(b.arrived) != 1 || b.arrived[0].m.Syndrome != c.theirs) {
						t.Errorf("the receive request ended as %+v, want %#x", b.arrived, c.theirs)
					}
				})
				w.idle()
			})
		})
	}
}

// TestLocalFaults checks that a fault of the requester's own memory fails the
// request in order and does not affect the requests before it.
func TestLocalFaults(t *testing.T) {
	for name, c := range map[string]struct {
		kind   Type
		r      *Request
		change func(h *host, r *Request)
		want   Syndrome
	}{
		"memory": {RC, send(10), func(h *host, r *Request) { h.gatherFault[r] = LocalProtection },
			LocalProtection},
		"memory of UC": {UC, send(10), func(h *host, r *Request) { h.gatherFault[r] = LocalProtection },
			LocalProtection},
		"too much": {RC, &Request{Op: Send, Length: 1<<32 - 1}, nil, LocalLength},
		"READ's memory": {RC, request(Read, 9, 1), func(h *host, r *Request) { h.scatterFault = LocalProtection },
			LocalProtection},
		"atomic's memory": {RC, request(FetchAdd, 8, 1), func(h *host, r *Request) { h.scatterFault = LocalAccess },
			LocalAccess},
		"local operation": {RC, &Request{Op: Local}, func(h *host, r *Request) { h.localFault = BindError }, BindError},
		"READ of UC":      {UC, request(Read, 9, 1), nil, LocalQPOp},
		"invalidate, UC":  {UC, request(SendInval, 9, 1), nil, LocalQPOp},
		"no READs": {RC, request(Read, 9, 1),
			func(h *host, r *Request) { c := h.e.Config(); c.MaxInitiate = 0; h.e.Modify(c) }, LocalQPOp},
		"no such":               {RC, &Request{Op: Local + 1}, nil, LocalQPOp},
		"WRITE on UD":           {UD, &Request{Op: Write, Dest: &Dest{QPN: 5, QKey: 0x11111111}}, nil, LocalQPOp},
		"UD without a receiver": {UD, send(1), nil, LocalQPOp},
		"long datagram": {UD, &Request{Op: Send, Length: 257, WQE: make([]byte, 257), Dest: &Dest{}}, nil,
			LocalLength},
		"target sends": {XRCTarget, send(1), nil, LocalQPOp},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, c.kind, nil)
				a := w.hosts[0]
				first := send(300)
				if c.kind == UD {
					first = send(30)
					first.Dest = &Dest{QPN: 9}
				}
				want := []Syndrome{OK, c.want, Flushed}
				requests := []*Request{first, c.r, send(1)}
				if c.kind == XRCTarget {
					want, requests = want[1:], requests[1:]
				}
				w.loop.Run(func() {
					w.hosts[1].memory[1] = make([]byte, 100)
					if c.change != nil {
						c.change(a, c.r)
					}
				})
				w.receive(1, 300)
				w.post(0, requests...)
				w.pass(10 * time.Millisecond)
				w.ends(0, want...)
			})
		})
	}
}

// TestInvalidRequests checks the responder with packets that our requester
// never sends.
func TestInvalidRequests(t *testing.T) {
	be := func(op roce.Opcode, n int) *roce.Packet {
		p := &roce.Packet{Opcode: op, PKey: 0xFFFF, PSN: 100, AckReq: true}
		if n > 0 {
			p.Payload = make([]byte, n)
		}
		return p
	}
	for name, c := range map[string]struct {
		packets []*roce.Packet
		nak     uint8 // 0: no response
	}{
		"middle of a SEND":       {[]*roce.Packet{be(roce.SendMiddle, 256)}, roce.NakInvalidRequest},
		"last of a WRITE":        {[]*roce.Packet{be(roce.WriteLast, 25)}, roce.NakInvalidRequest},
		"short first":            {[]*roce.Packet{be(roce.SendFirst, 252)}, roce.NakInvalidRequest},
		"long only":              {[]*roce.Packet{be(roce.SendOnly, 257)}, roce.NakInvalidRequest},
		"WRITE of other length":  {[]*roce.Packet{be(roce.WriteOnly, 1)}, roce.NakInvalidRequest},
		"WRITE first of nothing": {[]*roce.Packet{be(roce.WriteFirst, 256)}, roce.NakInvalidRequest},
		"SEND in a SEND": {[]*roce.Packet{be(roce.SendFirst, 256), {Opcode: roce.SendOnly, PSN: 101, PKey: 0xFFFF}},
			roce.NakInvalidRequest},
		"empty last": {[]*roce.Packet{be(roce.SendFirst, 256), {Opcode: roce.SendLast, PSN: 101, PKey: 0xFFFF}},
			roce.NakInvalidRequest},
		"READ of 3 GiB": {[]*roce.Packet{{Opcode: roce.ReadRequest, PSN: 100, PKey: 0xFFFF,
			RETH: roce.RETH{Length: 3 << 30}}}, roce.NakInvalidRequest},
		"WRITE of 3 GiB": {[]*roce.Packet{{Opcode: roce.WriteFirst, PSN: 100, PKey: 0xFFFF,
			RETH: roce.RETH{Length: 3 << 30}, Payload: make([]byte, 256)}}, roce.NakInvalidRequest},
		"a gap":             {[]*roce.Packet{{Opcode: roce.SendOnly, PSN: 101, PKey: 0xFFFF}}, roce.NakSequence},
		"another partition": {[]*roce.Packet{{Opcode: roce.SendOnly, PSN: 100, PKey: 0xFFFE, AckReq: true}}, 0},
		"a limited member":  {[]*roce.Packet{{Opcode: roce.SendOnly, PSN: 100, PKey: 0x7FFF, AckReq: true}}, 31},
		"another service":   {[]*roce.Packet{be(roce.UC.Of(roce.SendOnly), 0)}, 0},
		"unknown opcode":    {[]*roce.Packet{be(0x1F, 0)}, 0},
		"unknown duplicate": {[]*roce.Packet{{Opcode: roce.ReadRequest, PSN: 99, PKey: 0xFFFF,
			RETH: roce.RETH{Length: 1}}}, 0},
		"duplicate atomic": {[]*roce.Packet{{Opcode: roce.FetchAdd, PSN: 99, PKey: 0xFFFF}}, 0},
		"duplicate SEND":   {[]*roce.Packet{{Opcode: roce.SendOnly, PSN: 99, PKey: 0xFFFF, AckReq: true}}, 31},
		"quiet duplicate":  {[]*roce.Packet{{Opcode: roce.SendOnly, PSN: 99, PKey: 0xFFFF}}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, RC, nil)
				w.receive(1, 1000)
				w.loop.Run(func() {
					for _, p := range c.packets {
						w.hosts[1].e.Receive(p)
					}
				})
				w.pass(time.Second)
				w.loop.Run(func() {
					if n := w.seen["1 RC_ACK"]; (n == 0) != (c.nak == 0) || n > 1 {
						t.Fatalf("%d responses", n)
					}
					if c.nak != 0 && w.last[1].AETH.Syndrome != c.nak {
						t.Errorf("response %#x, want %#x", w.last[1].AETH.Syndrome, c.nak)
					}
				})
			})
		})
	}
}

// TestInvalidResponses checks that a requester ignores or reports invalid
// responses.
func TestInvalidResponses(t *testing.T) {
	ack := func(psn uint32, syndrome uint8) *roce.Packet {
		return &roce.Packet{Opcode: roce.Acknowledge, PKey: 0xFFFF, PSN: psn, AETH: roce.AETH{Syndrome: syndrome}}
	}
	resp := func(op roce.Opcode, psn uint32, n int) *roce.Packet {
		return &roce.Packet{Opcode: op, PKey: 0xFFFF, PSN: psn, Payload: make([]byte, n)}
	}
	for name, c := range map[string]struct {
		packet *roce.Packet
		want   []Syndrome // of SEND (PSN 100), READ of 600 bytes (101 to 103), SEND (104)
	}{
		"old duplicate":             {ack(99, roce.AckNoCredits), nil},
		"ACK of a packet not sent":  {ack(105, roce.AckNoCredits), nil},
		"NAK of a packet not sent":  {ack(105, roce.NakRemoteAccess), nil},
		"reserved NAK":              {ack(100, roce.Nak|9), []Syndrome{BadResponse, Flushed, Flushed}},
		"reserved kind":             {ack(100, 0x40), nil},
		"NAK of the SEND":           {ack(100, roce.NakRemoteOp), []Syndrome{RemoteOp, Flushed, Flushed}},
		"NAK in the READ":           {ack(101, roce.NakRemoteAccess), []Syndrome{OK, RemoteAccess, Flushed}},
		"ACK of the READ":           {ack(103, roce.AckNoCredits), []Syndrome{OK}},
		"ACK behind the READ":       {ack(104, roce.AckNoCredits), []Syndrome{OK}},
		"response to a SEND":        {resp(roce.ReadResponseOnly, 100, 4), []Syndrome{BadResponse, Flushed, Flushed}},
		"atomic response to a READ": {resp(roce.AtomicAcknowledge, 101, 0), []Syndrome{OK, BadResponse, Flushed}},
		"short piece":               {resp(roce.ReadResponseFirst, 101, 252), []Syndrome{OK, BadResponse, Flushed}},
		"end too early":             {resp(roce.ReadResponseOnly, 101, 256), []Syndrome{OK, BadResponse, Flushed}},
		"piece with a NAK": {&roce.Packet{Opcode: roce.ReadResponseFirst, PSN: 101, PKey: 0xFFFF,
			AETH: roce.AETH{Syndrome: roce.NakRemoteOp}, Payload: make([]byte, 256)}, []Syndrome{OK, BadResponse, Flushed}},
		"piece out of order":        {resp(roce.ReadResponseMid, 102, 256), []Syndrome{OK}},
		"first piece":               {resp(roce.ReadResponseFirst, 101, 256), []Syndrome{OK}},
		"request as response":       {&roce.Packet{Opcode: roce.SendOnly, PSN: 100, PKey: 0xFFFF}, nil},
		"response to an atomic, UD": {&roce.Packet{Opcode: roce.UD.Of(roce.SendOnly), PSN: 100, PKey: 0xFFFF}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, RC, func(_ int, c *Config) { c.AckTimeout = 0 })
				w.fate = drop(0)
				w.post(0, send(1), request(Read, 600, 1), send(2))
				w.loop.Run(func() { w.hosts[0].e.Receive(c.packet) })
				w.pass(time.Second)
				w.ends(0, c.want...)
			})
		})
	}
}
