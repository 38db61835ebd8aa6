package uverbs

import (
	"errors"
	"fmt"
	"math"

	"github.com/goverbs/goverbs/internal/driver"
	"golang.org/x/sys/unix"
)

// A QPConfig describes a queue pair: ibv_create_qp(3).
type QPConfig struct {
	Type   QPType
	SendCQ *CQ // must be large enough for the QP's completions: see CQConfig.Entries
	RecvCQ *CQ // nil: the same as SendCQ; an XRCSend QP has none
	// SRQ is the shared receive queue of the QP. If it is set, MaxRecvWR and MaxRecvSGE are
	// ignored: the QP has no other receive queue.
	SRQ *SRQ

	MaxSendWR  int // 0: no send queue
	MaxRecvWR  int // 0: no receive queue
	MaxSendSGE int // 0: 1
	MaxRecvSGE int // 0: 1
	MaxInline  int // bytes
	// MaxTSOHeader is the maximum length of the headers of a TSO, in bytes. RawPacket only.
	MaxTSOHeader int

	// SignalAll makes every send request have a completion, as if it were Signaled.
	SignalAll bool
	// CreateFlags change the QP's behavior.
	CreateFlags QPCreateFlags
	// SingleGoroutine omits the locks. Then only one goroutine at a time may post to each of
	// the two queues, and Close must be called by the goroutine that uses both.
	SingleGoroutine bool

	// GID is the local address that Endpoint and Connect use. Nil means the best entry of the
	// first active port, as chosen by SelectGID.
	GID *GIDEntry
	// Path sets the traffic class, service level and flow label of packets to the peer.
	// Connect, Handshake and AHAttr use it.
	Path PathConfig
	// Access is the set of rights that peers have through this QP, within what each MR allows:
	// RemoteRead, RemoteWrite, RemoteAtomic. Connect sets it.
	Access Access
	// DCKey is the access key of a DCT. Requests must carry it: see SendWR.DCKey. DCT only.
	DCKey uint64
	// DCIStreams divides the requests of a DCI into streams. DCI only.
	DCIStreams DCIStreams
	// QKey is the Q_Key that datagrams to a UD QP, and requests to an SRD QP, must carry. Ready sets it. A Q_Key with bit
	// 31 set requires CAP_NET_RAW.
	QKey uint32
	// Options are options that only QPs of one driver have: a pointer to a struct of its provider,
	// such as QPOptions of provider/mlx5. CreateQP reads it. If the driver of the device does not
	// have options of this type, CreateQP returns [ErrNotSupported].
	Options any
}

// DCIStreams are the streams of a DCI: struct mlx5dv_dci_streams of mlx5dv_create_qp(3). Without
// streams, the requests of a DCI are carried out in order, one destination after the other, and an
// error moves the QP to ERR. With streams, the device carries out several streams at the same
// time, each in order, and an error stops only its stream. SendWR.DCStream is the stream.
//
// Both numbers are powers of two. QueryDevice of provider/mlx5 returns the device's limits.
type DCIStreams struct {
	Concurrent int // streams that are carried out at the same time; 0: no streams
	Errored    int // streams in error that move the QP to ERR; 0: 1
}

// own copies what cfg points to: the program may change it later.
func (cfg *QPConfig) own() {
	if cfg.GID != nil {
		gid := *cfg.GID
		cfg.GID = &gid
	}
}

func (p *PD) checkQP(cfg *QPConfig) error {
	const op = "create QP"
	if err := checkCreateFlags(op, &p.object, cfg.CreateFlags); err != nil {
		return err
	}
	if err := cfg.checkDCFields(op, &p.object); err != nil {
		return err
	}
	if cfg.SendCQ == nil {
		return invalid(op, p.String(), "SendCQ is nil")
	}
	for _, cq := range []*CQ{cfg.SendCQ, cfg.RecvCQ} {
		if cq != nil && cq.ctx != p.ctx {
			return invalid(op, p.String(), cq.String()+" belongs to another Context than the PD")
		}
	}
	if cfg.Type == 0 {
		return invalid(op, p.String(), "Type is not set: it is RC, UC, UD, XRCSend, DCI, DCT, SRD or RawPacket")
	}
	if err := p.checkQPType(cfg); err != nil {
		return err
	}
	if cfg.SRQ != nil {
		cfg.MaxRecvWR, cfg.MaxRecvSGE = 0, 0
	}
	if err := checkGID(op, &p.object, cfg.GID); err != nil {
		return err
	}
	if err := cfg.Path.check(op, p.String); err != nil {
		return err
	}
	if cfg.MaxSendSGE == 0 {
		cfg.MaxSendSGE = 1
	}
	if cfg.MaxRecvSGE == 0 && cfg.SRQ == nil && cfg.Type != XRCSend && cfg.Type != DCI {
		cfg.MaxRecvSGE = 1
	}
	for _, n := range []struct {
		name  string
		value int
	}{{"MaxSendWR", cfg.MaxSendWR}, {"MaxRecvWR", cfg.MaxRecvWR}, {"MaxSendSGE", cfg.MaxSendSGE},
		{"MaxRecvSGE", cfg.MaxRecvSGE}, {"MaxInline", cfg.MaxInline}, {"MaxTSOHeader", cfg.MaxTSOHeader}} {
		if n.value < 0 || n.value > math.MaxInt32 {
			return invalid(op, p.String(), n.name+" must be 0 to 2^31-1: "+sitoa(n.value))
		}
	}
	return nil
}

// checkQPType checks the fields of cfg against its type.
func (p *PD) checkQPType(cfg *QPConfig) error {
	const op = "create QP"
	if cfg.MaxTSOHeader != 0 && cfg.Type != RawPacket {
		return invalid(op, p.String(), "MaxTSOHeader is for QPs of type RawPacket")
	}
	switch cfg.Type {
	case RC, UC, UD, RawPacket:
	case XRCSend:
		if cfg.RecvCQ != nil || cfg.SRQ != nil || cfg.MaxRecvWR|cfg.MaxRecvSGE != 0 {
			return invalid(op, p.String(), "an XRCSend QP receives nothing: leave RecvCQ, SRQ, MaxRecvWR and MaxRecvSGE out")
		}
	case XRCRecv:
		return invalid(op, p.String(), "an XRCRecv QP belongs to an XRC domain: create it with XRCD.CreateQP")
	case DCI, DCT:
		if err := p.checkDC(cfg); err != nil {
			return err
		}
	case SRD:
		if _, ok := p.ctx.impl.(driver.SRDs); !ok {
			return &Error{Op: op, Object: p.String(), Kind: ErrNotSupported, Errno: unix.EOPNOTSUPP,
				Detail: "the device has no QPs of type SRD: its driver has no scalable reliable datagrams; that of EFA devices has"}
		}
	default:
		return &Error{Op: op, Object: p.String(), Kind: ErrNotSupported, Errno: 0,
			Detail: cfg.Type.String() + " is not supported: RC, UC, UD, XRCSend, DCI, DCT, SRD and RawPacket are"}
	}
	if s := cfg.SRQ; s != nil && s.ctx != p.ctx {
		return invalid(op, p.String(), s.String()+" belongs to another Context than the PD")
	} else if s != nil && s.cq != nil {
		return invalid(op, p.String(),
			s.String()+" is an XRC SRQ: an XRCSend QP of the peer names it by its SRQN, no QP here does")
	}
	return nil
}

// checkDCFields checks that QPs of other types have no fields of DC.
func (cfg *QPConfig) checkDCFields(op string, o *object) error {
	if cfg.DCKey != 0 && cfg.Type != DCT {
		return invalid(op, o.String(), "DCKey is for QPs of type DCT; requests of a DCI have SendWR.DCKey")
	}
	if cfg.DCIStreams != (DCIStreams{}) && cfg.Type != DCI {
		return invalid(op, o.String(), "DCIStreams is for QPs of type DCI")
	}
	return nil
}

// checkDC checks the configuration of a DCI or a DCT.
func (p *PD) checkDC(cfg *QPConfig) error {
	const op = "create QP"
	if _, ok := p.ctx.impl.(driver.DCs); !ok {
		return &Error{Op: op, Object: p.String(), Kind: ErrNotSupported, Errno: unix.EOPNOTSUPP,
			Detail: "the device has no QPs of type " + cfg.Type.String() +
				": its driver has no dynamically connected transport; that of mlx5 devices has"}
	}
	streams := &cfg.DCIStreams
	switch {
	case cfg.Type == DCT && cfg.SRQ == nil:
		return invalid(op, p.String(), "a DCT receives into an SRQ: set SRQ")
	case cfg.Type == DCT && cfg.MaxSendWR|cfg.MaxSendSGE|cfg.MaxInline != 0:
		return invalid(op, p.String(), "a DCT sends nothing: leave MaxSendWR, MaxSendSGE and MaxInline out")
	case cfg.Type == DCT:
		return nil
	case cfg.SRQ != nil || cfg.MaxRecvWR|cfg.MaxRecvSGE != 0:
		return invalid(op, p.String(), "a DCI receives nothing: leave SRQ, MaxRecvWR and MaxRecvSGE out")
	case streams.Concurrent == 0 && streams.Errored != 0:
		return invalid(op, p.String(), "DCIStreams.Concurrent is not set: it is the number of streams")
	}
	for _, n := range []int{streams.Concurrent, streams.Errored} {
		if n < 0 || n > 1<<15 || n&(n-1) != 0 {
			return invalid(op, p.String(), "the numbers in DCIStreams must be powers of two up to 2^15: "+sitoa(n))
		}
	}
	return nil
}

func checkGID(op string, on *object, g *GIDEntry) error {
	if g != nil && (g.Index < 0 || g.Index > math.MaxUint8 || g.Port < 1 || g.Port > math.MaxUint8) {
		return invalid(op, on.String(), fmt.Sprintf("GID has port %d and index %d: an address vector has room for ports "+
			"1 to 255 and indexes 0 to 255", g.Port, g.Index))
	}
	return nil
}

// explainCreateQP finds out, after a failure, which value the device does not
// support.
func (c *Context) explainCreateQP(err error, cfg *QPConfig) error {
	if e := c.notEthernet(err, cfg); e != nil {
		return e
	}
	a, qerr := c.QueryDevice()
	if qerr != nil {
		return c.wrap("create QP", c.name, err, "")
	}
	for _, n := range []struct {
		name         string
		asked, limit int
	}{{"MaxSendWR", cfg.MaxSendWR, a.MaxQPWR}, {"MaxRecvWR", cfg.MaxRecvWR, a.MaxQPWR},
		{"MaxSendSGE", cfg.MaxSendSGE, a.MaxSGE}, {"MaxRecvSGE", cfg.MaxRecvSGE, a.MaxSGE}} {
		if n.asked > n.limit {
			return c.explainLimit("create QP", err, n.name, n.asked, func(*DeviceAttr) int { return n.limit })
		}
	}
	detail := ""
	if errors.Is(err, unix.ENOMEM) {
		detail = driver.NoObjectLeft
	}
	if notSupported(err) {
		detail = "the device has no QPs of type " + cfg.Type.String()
	}
	if text := driver.ExplainRaw(err); text != "" && (cfg.Type == RawPacket || cfg.CreateFlags != 0) {
		detail = text
	}
	switch {
	case !errors.Is(err, unix.EINVAL):
	case cfg.DCIStreams.Concurrent > 0:
		detail = fmt.Sprintf("DCIStreams are %d and %d: the device may have fewer streams, or none",
			cfg.DCIStreams.Concurrent, cfg.DCIStreams.Errored)
	case cfg.MaxInline > 0:
		detail = "MaxInline is " + sitoa(cfg.MaxInline) + " bytes: the device may accept less, lower it"
	}
	return c.wrap("create QP", c.name, err, detail)
}

// notEthernet returns the error for raw packets on a device without Ethernet, for
// which drivers return EINVAL. It returns nil if that is not the cause.
func (c *Context) notEthernet(err error, cfg *QPConfig) error {
	if cfg.Type != RawPacket || !errors.Is(err, unix.EINVAL) {
		return nil
	}
	for port := 1; port <= c.device.Ports; port++ {
		if a, qerr := c.QueryPort(port); qerr != nil || a.LinkLayer != LinkInfiniBand {
			return nil
		}
	}
	return &Error{Op: "create QP", Object: c.name, Kind: ErrNotSupported, Errno: unix.EINVAL,
		Detail: "raw packets are Ethernet's, and the link layer of the device's ports is InfiniBand"}
}
