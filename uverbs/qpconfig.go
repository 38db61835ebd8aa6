package uverbs

import (
	"errors"
	"fmt"
	"math"

	"golang.org/x/sys/unix"
)

func (p *PD) checkQP(cfg *QPConfig) error {
	const op = "create QP"
	if err := checkCreateFlags(op, &p.object, cfg.CreateFlags); err != nil {
		return err
	}
	if cfg.RSS != nil {
		return p.checkRSS(cfg)
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
		return invalid(op, p.String(), "Type is not set: say RC, UC, UD or RawPacket")
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
	if err := cfg.Path.check(op, p.String()); err != nil {
		return err
	}
	if cfg.MaxSendSGE == 0 {
		cfg.MaxSendSGE = 1
	}
	if cfg.MaxRecvSGE == 0 && cfg.SRQ == nil && cfg.Type != XRCSend {
		cfg.MaxRecvSGE = 1
	}
	for _, n := range []struct {
		name  string
		value int
	}{{"MaxSendWR", cfg.MaxSendWR}, {"MaxRecvWR", cfg.MaxRecvWR}, {"MaxSendSGE", cfg.MaxSendSGE},
		{"MaxRecvSGE", cfg.MaxRecvSGE}, {"MaxInline", cfg.MaxInline}} {
		if n.value < 0 || n.value > math.MaxInt32 {
			return invalid(op, p.String(), n.name+" must be 0 to 2^31-1: "+sitoa(n.value))
		}
	}
	return nil
}

// checkQPType checks the fields of cfg against its type.
func (p *PD) checkQPType(cfg *QPConfig) error {
	const op = "create QP"
	switch cfg.Type {
	case RC, UC, UD, RawPacket:
	case XRCSend:
		if cfg.RecvCQ != nil || cfg.SRQ != nil || cfg.MaxRecvWR|cfg.MaxRecvSGE != 0 {
			return invalid(op, p.String(), "an XRCSend QP receives nothing: leave RecvCQ, SRQ, MaxRecvWR and MaxRecvSGE out")
		}
	case XRCRecv:
		return invalid(op, p.String(), "an XRCRecv QP belongs to an XRC domain: make it by XRCD.CreateQP")
	default:
		return &Error{Op: op, Object: p.String(), Kind: ErrNotSupported, Errno: 0, Detail: cfg.Type.String() + " is not supported: RC, UC, UD, XRCSend and RawPacket are"}
	}
	if s := cfg.SRQ; s != nil && s.ctx != p.ctx {
		return invalid(op, p.String(), s.String()+" belongs to another Context than the PD")
	} else if s != nil && s.cq != nil {
		return invalid(op, p.String(), s.String()+" is an XRC SRQ: an XRCSend QP of the peer names it by its SRQN, no QP here does")
	}
	return nil
}

func checkGID(op string, on *object, g *GIDEntry) error {
	if g != nil && (g.Index < 0 || g.Index > math.MaxUint8 || g.Port < 1 || g.Port > math.MaxUint8) {
		return invalid(op, on.String(), fmt.Sprintf("GID has port %d and index %d: an address vector has room for ports 1 to 255 and indexes 0 to 255", g.Port, g.Index))
	}
	return nil
}

// explainCreateQP finds out, after a failure, which value the device does not
// support.
func (c *Context) explainCreateQP(err error, cfg *QPConfig) error {
	if e := c.notEthernet(err, cfg); e != nil {
		return e
	}
	if cfg.RSS != nil {
		return c.wrap("create QP", c.name, err, cfg.RSS.explain(err))
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
	if notSupported(err) {
		detail = "the device has no QPs of type " + cfg.Type.String()
	}
	if text := explainRaw(err); text != "" && (cfg.Type == RawPacket || cfg.CreateFlags != 0) {
		detail = text
	}
	if cfg.MaxInline > 0 && errors.Is(err, unix.EINVAL) {
		detail = "MaxInline is " + sitoa(cfg.MaxInline) + " bytes: the device may take less, lower it"
	}
	return c.wrap("create QP", c.name, err, detail)
}
