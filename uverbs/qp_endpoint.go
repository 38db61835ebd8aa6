package uverbs

import (
	"fmt"
	"net/netip"
	"strings"

	"golang.org/x/sys/unix"
)

// An Endpoint describes a QP to a peer that connects to it. Two programs exchange their
// Endpoints by other means, for instance over a TCP connection: Endpoint implements
// encoding.TextMarshaler.
type Endpoint struct {
	QPN      uint32
	PSN      uint32 // sequence number of the first packet, 24 bits
	LID      uint16 // on InfiniBand
	GID      GID
	MTU      MTU   // active MTU of the port
	RdAtomic uint8 // READs and atomics that the QP can serve at the same time

	// GRHRequired reports whether packets to the port must have a GRH, on InfiniBand.
	GRHRequired bool
	// ECE is the set of vendor-specific options that the QP supports, or zero.
	ECE ECE
}

const (
	endpointFormat = "%04x:%06x:%06x:%032x:%d:%d"
	endpointFields = 6

	attrGRH = "grh"
	attrECE = "ece="
	eceForm = attrECE + "%x.%x"
)

// MarshalText returns lid:qpn:psn:gid:mtu:rdatomic, the first four in hexadecimal. It appends
// :grh if GRHRequired is set, and :ece=vendor.options in hexadecimal if there are options. It
// cannot fail.
func (e Endpoint) MarshalText() ([]byte, error) {
	b := fmt.Appendf(nil, endpointFormat, e.LID, e.QPN, e.PSN, e.GID[:], e.MTU, e.RdAtomic)
	if e.GRHRequired {
		b = append(b, ":"+attrGRH...)
	}
	if e.ECE.Options != 0 {
		b = fmt.Appendf(b, ":"+eceForm, e.ECE.VendorID, e.ECE.Options)
	}
	return b, nil
}

func (e Endpoint) String() string {
	b, _ := e.MarshalText() // cannot fail
	return string(b)
}

// UnmarshalText parses the output of MarshalText. It ignores unknown attributes after the six
// fields, since a later version may write more. It returns [ErrInvalid] for any other text.
func (e *Endpoint) UnmarshalText(text []byte) error {
	v, ok := parseEndpoint(string(text))
	if !ok {
		return invalid("parse endpoint", "",
			fmt.Sprintf("want lid:qpn:psn:gid:mtu:rdatomic as MarshalText writes it, got %q", text))
	}
	*e = v
	return nil
}

func parseEndpoint(text string) (Endpoint, bool) {
	fields := strings.Split(text, ":")
	if len(fields) < endpointFields {
		return Endpoint{}, false
	}
	var gid []byte
	var e Endpoint
	base := strings.Join(fields[:endpointFields], ":")
	n, err := fmt.Sscanf(base, "%4x:%6x:%6x:%32x:%d:%d", &e.LID, &e.QPN, &e.PSN, &gid, &e.MTU, &e.RdAtomic)
	if err != nil || n != endpointFields || len(gid) != len(e.GID) || e.MTU.Bytes() == 0 {
		return Endpoint{}, false
	}
	e.GID = GID(gid)
	// Sscanf accepts text that does not fill the fields.
	if !strings.EqualFold(e.String(), base) {
		return Endpoint{}, false
	}
	for _, attr := range fields[endpointFields:] {
		if !e.parseAttr(attr) {
			return Endpoint{}, false
		}
	}
	return e, true
}

// parseAttr parses one attribute after the six fields, and reports whether it is well-formed.
func (e *Endpoint) parseAttr(attr string) bool {
	switch {
	case attr == attrGRH:
		e.GRHRequired = true
	case strings.HasPrefix(attr, attrECE):
		n, err := fmt.Sscanf(attr, eceForm, &e.ECE.VendorID, &e.ECE.Options)
		return err == nil && n == 2 && attr == fmt.Sprintf(eceForm, e.ECE.VendorID, e.ECE.Options)
	}
	return attr != "" && !strings.ContainsFunc(attr, func(r rune) bool { return r <= ' ' || r > '~' })
}

// maxRdAtomic limits what Connect requests. Common NICs serve this many at the same time.
const maxRdAtomic = 16

// localGID returns the address that Endpoint and Connect use: the configured one, or the best
// one, chosen by the first call. hint is an address of the peer, perhaps in another network. If
// no GID is suitable for it, the best one for any peer is chosen.
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

// A localPath is the local end of the path to a peer.
type localPath struct {
	gid  *GIDEntry
	port *PortAttr
}

// localPath returns the GID and the port that the QP uses. See localGID for hint.
func (q *QP) localPath(hint netip.Addr) (l localPath, err error) {
	if q.ctx.device.NodeType == NodeRNIC {
		return l, &Error{Op: "query endpoint", Object: q.String(), Kind: ErrNotSupported, Errno: unix.EOPNOTSUPP,
			Detail: "on iWARP, only rdma_cm connects QPs: use package cm"}
	}
	if l.gid, err = q.localGID(hint); err != nil {
		return l, err
	}
	l.port, err = q.ctx.QueryPort(l.gid.Port)
	return l, err
}

// Endpoint returns the QP's Endpoint, for a peer. Its address is QPConfig.GID, or the best one
// of the first active port. It returns [ErrClosed] after Close of the Context, [ErrInvalid] if no
// GID can be used, and [ErrState] for a DCT that has no number yet: call [QP.Ready] first.
func (q *QP) Endpoint() (Endpoint, error) {
	l, err := q.localPath(netip.Addr{})
	if err != nil {
		return Endpoint{}, err
	}
	return q.endpointOf(l)
}

func (q *QP) endpointOf(l localPath) (Endpoint, error) {
	dev, err := q.ctx.limits()
	if err != nil {
		return Endpoint{}, err
	}
	// A QP without vendor-specific options connects as the standard specifies.
	ece, err := q.QueryECE()
	if err != nil {
		ece = ECE{}
	}
	qpn := q.QPN()
	if qpn == 0 && q.cfg.Type == DCT {
		return Endpoint{}, &Error{Op: "query endpoint", Object: q.String(), Kind: ErrState,
			Detail: "a DCT has its number from state RTR on: call Ready first"}
	}
	return Endpoint{QPN: qpn, PSN: q.psn, LID: l.port.LID, GID: l.gid.GID, MTU: l.port.ActiveMTU,
		RdAtomic: uint8(min(dev.MaxQPRdAtom, maxRdAtomic)), GRHRequired: l.port.GRHRequired, ECE: ece}, nil
}

// Connect moves the QP from RESET to RTS. The peer must do the same with this QP's Endpoint.
// Post receives before the peer may send. They can be posted from INIT on, which Connect passes
// through. So either post them between [QP.Init] and Connect, or tell the peer with a separate
// message when it may begin.
//
// QPConfig.Path sets the traffic class, service level and flow label of packets. On InfiniBand
// packets have a GRH only if the peer is in another subnet or one of the ports requires it.
// Both ends enable the options of enhanced connection establishment that both Endpoints have,
// unless [QP.SetECE] was called. Clear Endpoint.ECE to connect without options.
//
// An RC QP retries without limit if the peer has no receive posted, and gives up after about
// half a second if the peer does not reply. A UC QP detects neither: its messages are lost.
// [QP.Handshake] exchanges the Endpoints and connects over a TCP connection.
//
// Connect returns [ErrInvalid] for a UD or SRD QP and for an Endpoint that cannot be reached;
// otherwise the errors are those of [QP.Modify].
func (q *QP) Connect(remote Endpoint) error {
	if err := q.checkConnects(); err != nil {
		return err
	}
	if remote.MTU.Bytes() == 0 {
		return invalid("connect", q.String(), "the remote Endpoint has no MTU: set it to the peer's active MTU")
	}
	l, err := q.localPath(netip.Addr{})
	if err != nil {
		return err
	}
	local, err := q.endpointOf(l)
	if err != nil {
		return err
	}
	dev, err := q.ctx.limits()
	if err != nil {
		return err
	}
	if q.State() == StateReset {
		if err := q.init(l.gid.Port); err != nil {
			return err
		}
	}
	if err := q.agreeECE(local.ECE, remote.ECE); err != nil {
		return err
	}
	rtr, rts := q.connectMasks()
	err = q.Modify(QPAttr{State: StateRTR, PathMTU: min(local.MTU, remote.MTU), DestQPN: remote.QPN, RQPSN: remote.PSN,
		MaxDestRdAtomic: local.RdAtomic, MinRNRTimer: minRNRTimer, AV: q.addressOf(l, remote)}, rtr)
	if err != nil {
		return err
	}
	return q.Modify(QPAttr{State: StateRTS, SQPSN: q.psn, Timeout: ackTimeout, RetryCount: retries,
		RNRRetryCount: rnrRetries,
		MaxRdAtomic:   min(uint8(min(dev.MaxQPInitRdAtom, maxRdAtomic)), remote.RdAtomic)}, rts)
}

// The attributes that Connect and Ready set: see QPAttr. The retry count is not 7: rxe treats 7 as
// infinite, and a request to a peer that is gone would never complete.
const (
	minRNRTimer = 12
	ackTimeout  = 14
	retries     = 6
	rnrRetries  = 7
)

// connectMasks returns the attributes that QPs of q's type need for RTR and for RTS.
func (q *QP) connectMasks() (rtr, rts QPMask) {
	rtr, rts = MaskState|MaskAV|MaskPathMTU|MaskDestQPN|MaskRQPSN, MaskState|MaskSQPSN
	if q.cfg.Type == RC || q.cfg.Type == XRCRecv {
		rtr |= MaskMaxDestRdAtomic | MaskMinRNRTimer
	}
	switch q.cfg.Type {
	case RC, XRCSend:
		rts |= MaskTimeout | MaskRetryCount | MaskRNRRetryCount | MaskMaxRdAtomic
	case XRCRecv:
		rts |= MaskTimeout
	}
	return rtr, rts
}

// agreeECE sets the options that both ends support. Both ends compute the same result.
func (q *QP) agreeECE(local, remote ECE) error {
	common := local.Options & remote.Options
	if common == 0 || local.VendorID != remote.VendorID {
		return nil
	}
	return q.SetECE(ECE{VendorID: local.VendorID, Options: common})
}

func (q *QP) checkConnects() error {
	q.stateMu.Lock() // a Close that fails closes the gates for a moment
	err := q.alive()
	q.stateMu.Unlock()
	if err != nil {
		return named("connect", q.String(), err)
	}
	if q.cfg.Type == RawPacket {
		return invalid("connect", q.String(),
			"a raw packet QP has no peer: Ready moves it to RTS, and flows direct frames to it")
	}
	if q.cfg.Type.dc() {
		return invalid("connect", q.String(), "a "+q.cfg.Type.String()+
			" has no peer: Ready prepares it, and each request of a DCI names a DCT")
	}
	if q.cfg.Type.datagrams() {
		article := map[QPType]string{UD: "a ", SRD: "an "}[q.cfg.Type]
		return invalid("connect", q.String(), article+q.cfg.Type.String()+
			" QP has no peer: Ready moves it to RTS, and each message names an AH")
	}
	return nil
}

// Ready moves a UD or SRD QP from RESET to RTS, with QPConfig.QKey. From then on it can send, and
// receives datagrams that any peer sends to its QPN with that Q_Key. A raw packet QP receives
// the frames that its flows direct to it. The port is the one of QPConfig.GID, or the first
// active one. Receives can be posted earlier, after [QP.Init].
//
// Ready moves a DCI to RTS, so that it can send to any DCT, and a DCT to RTR, with
// QPConfig.Access. From then on the DCT has a QPN.
//
// Ready returns [ErrInvalid] for a QP of another type; otherwise the errors are those of
// [QP.Modify].
func (q *QP) Ready() error {
	if q.cfg.Type.dc() {
		return q.readyDC()
	}
	if !q.cfg.Type.datagrams() && q.cfg.Type != RawPacket {
		return invalid("ready", q.String(), "Ready is for UD, SRD, raw packet and DC QPs, "+
			"this one is "+q.cfg.Type.String()+": connect it to a peer by Connect or Handshake")
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

// readyDC is Ready for DC.
func (q *QP) readyDC() error {
	l, err := q.localPath(netip.Addr{})
	if err != nil {
		return err
	}
	dev, err := q.ctx.limits()
	if err != nil {
		return err
	}
	if q.State() == StateReset {
		if err := q.init(l.gid.Port); err != nil {
			return err
		}
	}
	if q.cfg.Type == DCT {
		self := q.addressOf(l, Endpoint{LID: l.port.LID, GID: l.gid.GID, GRHRequired: l.port.GRHRequired})
		return q.Modify(QPAttr{State: StateRTR, PathMTU: l.port.ActiveMTU, MinRNRTimer: minRNRTimer, AV: self},
			MaskState|MaskPathMTU|MaskMinRNRTimer|MaskAV)
	}
	if err := q.Modify(QPAttr{State: StateRTR, PathMTU: l.port.ActiveMTU}, MaskState|MaskPathMTU); err != nil {
		return err
	}
	return q.Modify(QPAttr{State: StateRTS, SQPSN: q.psn, Timeout: ackTimeout, RetryCount: retries,
		RNRRetryCount: rnrRetries,
		MaxRdAtomic:   uint8(min(dev.MaxQPInitRdAtom, maxRdAtomic))},
		MaskState|MaskSQPSN|MaskTimeout|MaskRetryCount|MaskRNRRetryCount|MaskMaxRdAtomic)
}

// AHAttr returns the address of a peer from its Endpoint, for [PD.CreateAH]. The path starts at
// the GID of this QP's Endpoint and has the attributes of QPConfig.Path. AHAttr returns
// [ErrClosed] after Close of the Context, and [ErrInvalid] if no GID can be used. For the
// sender of a datagram use [Context.AHAttrFromWC].
func (q *QP) AHAttr(remote Endpoint) (AHAttr, error) {
	l, err := q.localPath(remote.GID.Addr())
	if err != nil {
		return AHAttr{}, err
	}
	return q.addressOf(l, remote), nil
}

// addressOf returns the path to a peer.
func (q *QP) addressOf(l localPath, remote Endpoint) AHAttr {
	a := AHAttr{DLID: remote.LID, Port: uint8(l.gid.Port)}
	if l.needsGRH(remote) {
		a.IsGlobal, a.DGID, a.SGIDIndex, a.HopLimit = true, remote.GID, uint8(l.gid.Index), defaultHopLimit
	}
	q.cfg.Path.Apply(&a)
	if !a.IsGlobal { // these are fields of the GRH
		a.FlowLabel, a.HopLimit, a.TrafficClass = 0, 0, 0
	}
	return a
}

// needsGRH reports whether packets to a peer have a global routing header. On RoCE they always
// have one. On InfiniBand a peer in the same subnet is addressed by its LID, and the header
// would cost 40 bytes per packet.
func (l localPath) needsGRH(remote Endpoint) bool {
	switch {
	case remote.GID.IsZero():
		return false
	case l.port.LinkLayer != LinkInfiniBand, l.port.GRHRequired, remote.GRHRequired, remote.LID == 0:
		return true
	}
	return l.gid.GID.subnet() != remote.GID.subnet()
}

// Init moves the QP from RESET to INIT, where receives can be posted. Connect and Ready call it
// if needed. The errors are those of [QP.Modify], [ErrClosed] among them.
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
	if q.cfg.Type.datagrams() {
		return q.Modify(QPAttr{State: StateInit, Port: uint8(port), QKey: q.cfg.QKey},
			MaskState|MaskPKeyIndex|MaskPort|MaskQKey)
	}
	if q.cfg.Type == RawPacket {
		return q.Modify(QPAttr{State: StateInit, Port: uint8(port)}, MaskState|MaskPort)
	}
	if q.cfg.Type == DCI { // it receives nothing
		return q.Modify(QPAttr{State: StateInit, Port: uint8(port)}, MaskState|MaskPKeyIndex|MaskPort)
	}
	return q.Modify(QPAttr{State: StateInit, Port: uint8(port), Access: q.cfg.Access},
		MaskState|MaskPKeyIndex|MaskPort|MaskAccess)
}
