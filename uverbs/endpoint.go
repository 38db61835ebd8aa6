package uverbs

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
)

// An Endpoint is what a peer must know of a QP to connect to it. Two programs
// exchange theirs by a channel of their own, a TCP connection for instance: it
// is a TextMarshaler.
type Endpoint struct {
	QPN      uint32
	PSN      uint32 // 24 bits: the first packet's sequence number
	LID      uint16 // InfiniBand
	GID      GID
	MTU      MTU   // the port's active MTU
	RdAtomic uint8 // READs and atomics that the QP serves at a time
}

const endpointFormat = "%04x:%06x:%06x:%032x:%d:%d"

// MarshalText writes lid:qpn:psn:gid:mtu:rdatomic, the first four in
// hexadecimal. It cannot fail.
func (e Endpoint) MarshalText() ([]byte, error) {
	return fmt.Appendf(nil, endpointFormat, e.LID, e.QPN, e.PSN, e.GID[:], e.MTU, e.RdAtomic), nil
}

func (e Endpoint) String() string {
	b, _ := e.MarshalText() // cannot fail
	return string(b)
}

// UnmarshalText reads what MarshalText writes. [ErrInvalid] for anything else.
func (e *Endpoint) UnmarshalText(text []byte) error {
	var gid []byte
	var v Endpoint
	n, err := fmt.Sscanf(string(text), "%4x:%6x:%6x:%32x:%d:%d", &v.LID, &v.QPN, &v.PSN, &gid, &v.MTU, &v.RdAtomic)
	if err == nil && n == 6 && len(gid) == len(v.GID) && v.MTU.Bytes() > 0 {
		v.GID = GID(gid)
		// Sscanf is content with less than the whole.
		if strings.EqualFold(v.String(), string(text)) {
			*e = v
			return nil
		}
	}
	return invalid("parse endpoint", "", fmt.Sprintf("want lid:qpn:psn:gid:mtu:rdatomic as MarshalText writes it, got %q", text))
}

// maxRdAtomic bounds what Connect asks for: as much as commonly used NICs
// serve at a time.
const maxRdAtomic = 16

// localGID returns the address that Endpoint and Connect use: the configured
// one, or the best as it is found at the first call. hint is an address of the
// peer, perhaps in another network: where no GID is good for it, the best one
// for any peer is taken.
func (q *QP) localGID(hint netip.Addr) (*GIDEntry, error) {
	if q.cfg.GID != nil {
		return q.cfg.GID, nil
	}
	q.gidMu.Lock()
	defer q.gidMu.Unlock()
	if q.gid != nil {
		return q.gid, nil
	}
	choices, err := q.ctx.RankGIDs(0, hint)
	if err != nil {
		return nil, err
	}
	if len(choices) > 0 && choices[0].Score > scoreLinkLocal {
		q.gid = &choices[0].GIDEntry
		return q.gid, nil
	}
	q.gid, err = q.ctx.SelectGID(0, netip.Addr{})
	return q.gid, err
}

// Endpoint describes the QP to a peer. Its address is QPConfig.GID, or the
// best one of the first active port. [ErrClosed] after Close of the Context,
// [ErrInvalid] when no GID can be used.
func (q *QP) Endpoint() (Endpoint, error) {
	g, err := q.localGID(netip.Addr{})
	if err != nil {
		return Endpoint{}, err
	}
	port, err := q.ctx.QueryPort(g.Port)
	if err != nil {
		return Endpoint{}, err
	}
	dev, err := q.ctx.limits()
	if err != nil {
		return Endpoint{}, err
	}
	return Endpoint{QPN: q.number, PSN: q.psn, LID: port.LID, GID: g.GID, MTU: port.ActiveMTU,
		RdAtomic: uint8(min(dev.MaxQPRdAtom, maxRdAtomic))}, nil
}

// Connect takes the QP from RESET to RTS against a peer that does the same
// with this QP's Endpoint. Post receives before the peer may send: from INIT
// on they are taken, and Connect passes through it, so either post between
// [QP.Init] and Connect, or let a message of your own tell the peer to begin.
//
// An RC QP retries for ever when the peer has no receive posted, and gives up a
// peer that does not answer after about half a second. A UC QP never learns of
// either: its messages are lost. [QP.Handshake] does all of it over a TCP
// connection. [ErrInvalid] for a UD QP and for an Endpoint that cannot be
// reached; else the errors are those of [QP.Modify].
func (q *QP) Connect(remote Endpoint) error {
	if err := q.checkConnects(); err != nil {
		return err
	}
	if remote.MTU.Bytes() == 0 {
		return invalid("connect", q.String(), "the remote Endpoint has no MTU: set it to the peer's active MTU")
	}
	g, err := q.localGID(netip.Addr{})
	if err != nil {
		return err
	}
	local, err := q.Endpoint()
	if err != nil {
		return err
	}
	dev, err := q.ctx.limits()
	if err != nil {
		return err
	}
	if q.State() == StateReset {
		if err := q.init(g.Port); err != nil {
			return err
		}
	}
	rtr, rts := MaskState|MaskAV|MaskPathMTU|MaskDestQPN|MaskRQPSN, MaskState|MaskSQPSN
	if q.cfg.Type == RC || q.cfg.Type == XRCRecv {
		rtr |= MaskMaxDestRdAtomic | MaskMinRNRTimer
	}
	switch q.cfg.Type {
	case RC, XRCSend:
		rts |= MaskTimeout | MaskRetryCnt | MaskRNRRetry | MaskMaxRdAtomic
	case XRCRecv:
		rts |= MaskTimeout
	}
	err = q.Modify(QPAttr{State: StateRTR, PathMTU: min(local.MTU, remote.MTU), DestQPN: remote.QPN, RQPSN: remote.PSN,
		MaxDestRdAtomic: local.RdAtomic, MinRNRTimer: 12, AV: q.addressOf(g, remote)}, rtr)
	if err != nil {
		return err
	}
	// Not 7 retries: rxe takes them for infinitely many, and a request to a peer
	// that is gone would never complete.
	return q.Modify(QPAttr{State: StateRTS, SQPSN: q.psn, Timeout: 14, RetryCnt: 6, RNRRetry: 7,
		MaxRdAtomic: min(uint8(min(dev.MaxQPInitRdAtom, maxRdAtomic)), remote.RdAtomic)}, rts)
}

func (q *QP) checkConnects() error {
	if q.cfg.Type == RawPacket {
		return invalid("connect", q.String(), "a raw packet QP has no peer: Ready takes it to RTS, and flows lead frames to it")
	}
	if q.cfg.Type == UD {
		return invalid("connect", q.String(), "a UD QP has no peer: Ready takes it to RTS, and each message names an AH")
	}
	return nil
}

// Ready takes a UD QP from RESET to RTS, with QPConfig.QKey: from then on it
// receives what anybody sends to its QPN with that QKey, and sends. A raw packet
// QP receives what its flows lead to it. The port is that of QPConfig.GID, or the
// first active one. Receives can be posted before, after [QP.Init]. [ErrInvalid]
// for a QP that is neither; else the errors are those of [QP.Modify].
func (q *QP) Ready() error {
	if q.cfg.Type != UD && q.cfg.Type != RawPacket {
		return invalid("make ready", q.String(), "Ready is for UD and raw packet QPs, this one is "+q.cfg.Type.String()+": connect it to a peer by Connect or Handshake")
	}
	if q.State() == StateReset {
		if err := q.Init(); err != nil {
			return err
		}
	}
	if err := q.Modify(QPAttr{State: StateRTR}, MaskState); err != nil {
		return err
	}
	if q.cfg.Type == RawPacket {
		return q.Modify(QPAttr{State: StateRTS}, MaskState)
	}
	return q.Modify(QPAttr{State: StateRTS, SQPSN: q.psn}, MaskState|MaskSQPSN)
}

// AHAttr is the address of a peer whose Endpoint came some other way than by a
// message, for [PD.CreateAH]. The way there begins at the address that this
// QP's own Endpoint tells. [ErrClosed] after Close of the Context, [ErrInvalid]
// when no GID can be used.
func (q *QP) AHAttr(remote Endpoint) (AHAttr, error) {
	g, err := q.localGID(remote.GID.Addr())
	if err != nil {
		return AHAttr{}, err
	}
	return q.addressOf(g, remote), nil
}

// addressOf is the path to a peer: by GID where there is one, else by LID.
func (q *QP) addressOf(g *GIDEntry, remote Endpoint) AHAttr {
	const hops = 64
	return AHAttr{IsGlobal: !remote.GID.IsZero(), DGID: remote.GID, SGIDIndex: uint8(g.Index), HopLimit: hops,
		DLID: remote.LID, Port: uint8(g.Port)}
}

// Init takes the QP from RESET to INIT, where it takes receives. Connect and
// Ready do it when it has not been done. The errors are those of [QP.Modify],
// [ErrClosed] among them.
func (q *QP) Init() error {
	if q.cfg.GID != nil {
		return q.init(q.cfg.GID.Port)
	}
	port, err := q.ctx.activePort()
	if err != nil {
		return err
	}
	return q.init(port)
}

func (q *QP) init(port int) error {
	if q.cfg.Type == UD {
		return q.Modify(QPAttr{State: StateInit, Port: uint8(port), QKey: q.cfg.QKey}, MaskState|MaskPKeyIndex|MaskPort|MaskQKey)
	}
	if q.cfg.Type == RawPacket {
		return q.Modify(QPAttr{State: StateInit, Port: uint8(port)}, MaskState|MaskPort)
	}
	return q.Modify(QPAttr{State: StateInit, Port: uint8(port), Access: q.cfg.Access}, MaskState|MaskPKeyIndex|MaskPort|MaskAccess)
}

// State is the state that Modify put the QP in. The device may have moved it
// to ERR since: Query asks.
func (q *QP) State() QPState {
	q.stateMu.Lock()
	defer q.stateMu.Unlock()
	return q.state
}

// randomPSN is where a QP's packet sequence begins: not where an earlier QP of
// the same number left off.
func randomPSN() uint32 {
	return rand.Uint32() & 0xffffff
}
