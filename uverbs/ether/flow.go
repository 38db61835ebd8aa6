package ether

import (
	"errors"
	"fmt"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/driver"
	"github.com/goverbs/goverbs/internal/ioctl"
	"github.com/goverbs/goverbs/internal/uapi"
	"github.com/goverbs/goverbs/uverbs"
)

// A Flow is a rule that directs frames to a QP. It ends when it or its Context is closed.
type Flow struct {
	ctx  *uverbs.Context
	life driver.Extension
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
// CAP_NET_RAW: without it the error matches os.ErrPermission. It returns uverbs.ErrInvalid for a
// flow that the device does not accept, uverbs.ErrNotSupported if the device does not support flows
// (rxe does not) or these specifications, and uverbs.ErrClosed after Close of q.
func CreateFlow(q *uverbs.QP, a FlowAttr) (*Flow, error) {
	if a.Port == 0 {
		a.Port = 1
	}
	specs, err := a.encode(q)
	if err != nil {
		return nil, err
	}
	f := &Flow{ctx: q.Context()}
	f.life, err = driver.Extend(f.ctx, opCreateFlow, driver.ExtensionConfig{Kind: "flow", Parents: []any{q},
		Create: func(e driver.Extension) (handle uint32, err error) {
			f.life = e
			var typ uverbs.QPType
			err = driver.WithQP(q, opCreateFlow, func(r driver.QPRef) error {
				typ = uverbs.QPType(r.Type)
				handle, err = createFlow(r, &a, specs)
				return err
			})
			return handle, explained(err, func(err error) string { return explainFlow(typ, &a, err) })
		},
		Destroy: func() error { return f.destroy() },
	})
	if err != nil {
		return nil, err
	}
	return f, nil
}

const opCreateFlow = "create flow"

// encode returns the specifications in the kernel's format.
func (a *FlowAttr) encode(q *uverbs.QP) (specs []byte, err error) {
	const most = 10
	if ports := max(q.Context().Device().Ports, 1); a.Port < 1 || a.Port > ports {
		return nil, invalid(opCreateFlow, q.String(),
			fmt.Sprintf("port %d is out of range: the device has ports 1 to %d", a.Port, ports))
	}
	if len(a.Specs) > most {
		return nil, invalid(opCreateFlow, q.String(), "a flow has at most 10 Specs: "+strconv.Itoa(len(a.Specs)))
	}
	for i, s := range a.Specs {
		if s == nil {
			return nil, invalid(opCreateFlow, q.String(), "Specs["+strconv.Itoa(i)+"] is nil")
		}
		specs = s.encode(specs)
	}
	return specs, nil
}

func createFlow(q driver.QPRef, a *FlowAttr, specs []byte) (handle uint32, err error) {
	cmd := ioctl.Get()
	defer cmd.Put()
	head := uapi.IbUverbsCreateFlow{
		QpHandle: q.Handle,
		FlowAttr: uapi.IbUverbsFlowAttr{
			Type: uint32(a.Type), Size: uint16(len(specs)), Priority: a.Priority,
			NumOfSpecs: uint8(len(a.Specs)), Port: uint8(a.Port), Flags: uint32(a.Flags),
		},
	}
	resp := ioctl.WriteExTable[uapi.IbUverbsCreateFlowResp](cmd, uapi.IB_USER_VERBS_EX_CMD_CREATE_FLOW,
		append(ioctl.BytesOf(&head), specs...))
	if err := q.Device.Do(cmd); err != nil {
		return 0, err
	}
	return resp.FlowHandle, nil
}

// explainFlow explains what in a flow to a QP of a type the device does not support.
func explainFlow(typ uverbs.QPType, a *FlowAttr, err error) string {
	if errors.Is(err, unix.EPERM) {
		return driver.ExplainRaw(err)
	}
	if errors.Is(err, uverbs.ErrNotSupported) {
		return "the device has no flows, or does not match one of the fields that a Mask names: clear those, or leave " +
			"out the Spec"
	}
	if !errors.Is(err, unix.EINVAL) {
		return ""
	}
	if typ != uverbs.RawPacket && typ != uverbs.UD {
		return "flows lead to QPs of type RawPacket or UD, this one is " + typ.String()
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
	cmd := ioctl.Get()
	defer cmd.Put()
	cmd.Start(uapi.UVERBS_OBJECT_FLOW, uapi.UVERBS_METHOD_FLOW_DESTROY)
	cmd.Handle(uapi.UVERBS_ATTR_DESTROY_FLOW_HANDLE, driver.HandleOf(f.life))
	return f.life.DestroyCommand(cmd)
}

// Context returns the context that f was created on.
func (f *Flow) Context() *uverbs.Context { return f.ctx }

func (f *Flow) String() string { return f.life.String() }

// Close destroys the flow: ibv_destroy_flow(3). When Close has returned, the QP no longer
// receives the flow's frames. Close is idempotent. If the kernel refuses, Close returns
// its error and the flow still exists.
func (f *Flow) Close() error { return f.life.Close() }
