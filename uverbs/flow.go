package uverbs

import (
	"errors"
	"fmt"

	"github.com/goverbs/goverbs/internal/ioctl"
	"github.com/goverbs/goverbs/internal/uapi"
	"golang.org/x/sys/unix"
)

// A Flow is a rule that directs frames to a QP. It ends when it or its Context is closed.
type Flow struct {
	object
}

// A FlowAttr describes a flow: struct ibv_flow_attr and its specifications.
type FlowAttr struct {
	Type     FlowType
	Priority uint16 // the lowest value is matched first; among equal values the more specific flow
	Port     int    // counted from 1; 0: 1
	Flags    FlowFlags
	// Specs describe the headers of a frame, from the outermost to the innermost, and the
	// actions on it. There are at most 10. A frame has to match all of them.
	Specs []FlowSpec
}

// FlowType selects the frames that a flow applies to. The values are those of
// ibv_flow_attr_type.
type FlowType uint32

// The types of ibv_create_flow(3).
const (
	FlowNormal           FlowType = 0 // frames that match Specs
	FlowAllDefault       FlowType = 1 // frames that no other flow matches
	FlowMulticastDefault FlowType = 2 // multicast frames that no other flow matches
	FlowSniffer          FlowType = 3 // all frames of the port
)

// FlowFlags change the behavior of a flow. The values are those of ibv_flow_flags.
type FlowFlags uint32

// The flags of ibv_create_flow(3).
const (
	FlowDontTrap FlowFlags = 1 << 1 // flows of a lower priority receive the frame too
	FlowEgress   FlowFlags = 1 << 2 // the flow applies to frames that are sent
)

// CreateFlow directs frames to q, a QP of type RawPacket or UD: ibv_create_flow(3). It requires
// CAP_NET_RAW: without it the error matches os.ErrPermission. It returns [ErrInvalid] for a
// flow that the device does not accept, [ErrNotSupported] if the device does not support flows
// (rxe does not) or these specifications, and [ErrClosed] after Close.
func (q *QP) CreateFlow(a FlowAttr) (*Flow, error) {
	const op, most = "create flow", 10
	if a.Port == 0 {
		a.Port = 1
	}
	if err := q.ctx.checkPort(op, a.Port); err != nil {
		return nil, err
	}
	if len(a.Specs) > most {
		return nil, invalid(op, q.String(), "a flow has at most 10 Specs: "+sitoa(len(a.Specs)))
	}
	var specs []byte
	for i, s := range a.Specs {
		if s == nil {
			return nil, invalid(op, q.String(), "Specs["+sitoa(i)+"] is nil")
		}
		specs = s.encode(specs)
	}
	f := new(Flow)
	f.object = object{ctx: q.ctx, life: f, kind: "flow", rank: rankFlow}
	f.addParents(&q.object)
	if err := f.createWith(func() error { return f.create(q, &a, specs) }); err != nil {
		return nil, err
	}
	return f, nil
}

func (f *Flow) create(q *QP, a *FlowAttr, specs []byte) error {
	cmd := ioctl.Get()
	defer cmd.Put()
	head := uapi.IbUverbsCreateFlow{
		QpHandle: q.handle,
		FlowAttr: uapi.IbUverbsFlowAttr{
			Type: uint32(a.Type), Size: uint16(len(specs)), Priority: a.Priority,
			NumOfSpecs: uint8(len(a.Specs)), Port: uint8(a.Port), Flags: uint32(a.Flags),
		},
	}
	resp := ioctl.WriteExTable[uapi.IbUverbsCreateFlowResp](cmd, uapi.IB_USER_VERBS_EX_CMD_CREATE_FLOW,
		append(ioctl.BytesOf(&head), specs...))
	if err := f.ctx.dev.Do(cmd); err != nil {
		return f.ctx.wrap("create flow", q.String(), err, q.explainFlow(a, err))
	}
	f.handle, f.number = resp.FlowHandle, resp.FlowHandle
	return nil
}

func (q *QP) explainFlow(a *FlowAttr, err error) string {
	if errors.Is(err, unix.EPERM) {
		return explainRaw(err)
	}
	if notSupported(err) {
		return "the device has no flows, or does not match one of the fields that a Mask names: clear those, or leave " +
			"out the Spec"
	}
	if !errors.Is(err, unix.EINVAL) {
		return ""
	}
	if q.cfg.Type != RawPacket && q.cfg.Type != UD {
		return "flows lead to QPs of type RawPacket or UD, this one is " + q.cfg.Type.String()
	}
	if a.Flags&FlowDontTrap != 0 && (a.Type == FlowAllDefault || a.Type == FlowMulticastDefault) {
		return "the flag FlowDontTrap is for flows of type FlowNormal"
	}
	for _, s := range a.Specs {
		if t, ok := s.(FlowActionTag); ok && t.ID >= 1<<24 {
			return fmt.Sprintf("the ID of a FlowActionTag has 24 bits: %#x", t.ID)
		}
	}
	return "the Specs go from the outside in, FlowEth first, and do not contradict each other"
}

func (f *Flow) destroy() error {
	return f.destroyHandle(uapi.UVERBS_OBJECT_FLOW, uapi.UVERBS_METHOD_FLOW_DESTROY, uapi.UVERBS_ATTR_DESTROY_FLOW_HANDLE)
}

// Context returns the context that f was created on.
func (f *Flow) Context() *Context { return f.ctx }

// Close destroys the flow: ibv_destroy_flow(3). When Close has returned, the QP no longer
// receives the flow's frames. Close is idempotent. If the kernel refuses, Close returns
// its error and the flow still exists.
func (f *Flow) Close() error { return f.close() }
