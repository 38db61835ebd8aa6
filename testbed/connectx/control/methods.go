package control

import (
	"bytes"
	"encoding/json"
	"errors"

	"github.com/goverbs/goverbs/internal/sim/connectx/fabric"
	"github.com/goverbs/goverbs/internal/sim/connectx/transport"
)

// A Network is a switch or a subnet of package fabric.
type Network interface {
	Ports() []fabric.PortStatus
	SetLink(port string, up bool) error
	Faults() []fabric.FaultStatus
	AddFault(fabric.Fault) (id int, err error)
	RemoveFault(id int) error
	ClearFaults()
}

// Firmware is the part of a device that executes commands.
type Firmware interface {
	// FailCommand makes the next count commands of an opcode fail with a status
	// and a syndrome, after skip others.
	FailCommand(opcode uint16, status uint8, syndrome uint32, skip, count int) error
	// SetHealth makes the firmware fail with a syndrome; 0 makes it healthy
	// again.
	SetHealth(syndrome uint8)
	// SetGone makes the registers read as ones, as after a bus failure. The
	// device keeps its state.
	SetGone(gone bool)
	// OverrunEQ makes an event queue overrun. It reports whether the queue
	// exists.
	OverrunEQ(number uint32) bool
	// EQs returns the numbers of the event queues.
	EQs() []uint32
}

// Engine is the part of a device that completes work.
type Engine interface {
	// InjectCompletion makes the next count completions of a queue pair errors,
	// after skip others.
	InjectCompletion(qpn uint32, syndrome transport.Syndrome, vendor uint8, skip, count int) error
}

// A Slot is the slot of a device.
type Slot interface {
	Pull() // surprise removal
	Plug() // as after a reset
}

// A Device is a device that can be controlled. Its functions are called inside
// the loop. Fields that are nil are not supported.
type Device struct {
	Name     string
	Firmware Firmware
	Engine   Engine
	Slot     Slot
	// Counters returns the device's counters, as any value that can be encoded
	// as JSON.
	Counters func() any
}

// A DeviceStatus is the status of a device.
type DeviceStatus struct {
	Name     string          `json:"name"`
	EQs      []uint32        `json:"eqs,omitempty"`
	Counters json.RawMessage `json:"counters,omitempty"`
}

// Parameters of the methods.
type (
	none      struct{}
	linkParam struct {
		Port string `json:"port"`
		Up   bool   `json:"up"`
	}
	faultID struct {
		ID int `json:"id"`
	}
	deviceParam struct {
		Device string `json:"device"`
	}
	commandParam struct {
		Device   string `json:"device"`
		Opcode   uint16 `json:"opcode"`
		Status   uint8  `json:"status"`
		Syndrome uint32 `json:"syndrome,omitempty"`
		Skip     int    `json:"skip,omitempty"`
		Count    int    `json:"count"`
	}
	completionParam struct {
		Device   string             `json:"device"`
		QPN      uint32             `json:"qpn"`
		Syndrome transport.Syndrome `json:"syndrome"`
		Vendor   uint8              `json:"vendor,omitempty"`
		Skip     int                `json:"skip,omitempty"`
		Count    int                `json:"count"`
	}
	healthParam struct {
		Device   string `json:"device"`
		Syndrome uint8  `json:"syndrome"`
	}
	goneParam struct {
		Device string `json:"device"`
		Gone   bool   `json:"gone"`
	}
	queueParam struct {
		Device string `json:"device"`
		Number uint32 `json:"number"`
	}
)

// A method executes a request inside the loop.
type method func(s *Server, params json.RawMessage) (any, error)

// methods are the methods by name.
var methods = map[string]method{
	"ports":         call(func(s *Server, _ none) (any, error) { return s.network.Ports(), nil }),
	"set-link":      call(func(s *Server, p linkParam) (any, error) { return nil, s.network.SetLink(p.Port, p.Up) }),
	"faults":        call(func(s *Server, _ none) (any, error) { return s.network.Faults(), nil }),
	"add-fault":     call((*Server).addFault),
	"remove-fault":  call(func(s *Server, p faultID) (any, error) { return nil, s.network.RemoveFault(p.ID) }),
	"clear-faults":  call(func(s *Server, _ none) (any, error) { s.network.ClearFaults(); return nil, nil }),
	"devices":       call((*Server).list),
	"fail-command":  call((*Server).failCommand),
	"inject-cqe":    call((*Server).injectCompletion),
	"set-health":    call((*Server).setHealth),
	"set-gone":      call((*Server).setGone),
	"overrun-eq":    call((*Server).overrunEQ),
	"remove-device": call(func(s *Server, p deviceParam) (any, error) { return s.slot(p, Slot.Pull) }),
	"insert-device": call(func(s *Server, p deviceParam) (any, error) { return s.slot(p, Slot.Plug) }),
}

// call converts a function with typed parameters to a method. Unknown
// parameters are refused, because they are probably misspelled.
func call[P any](f func(*Server, P) (any, error)) method {
	return func(s *Server, params json.RawMessage) (any, error) {
		var p P
		if len(params) > 0 {
			d := json.NewDecoder(bytes.NewReader(params))
			d.DisallowUnknownFields()
			var network *fabric.Error
			if err := d.Decode(&p); errors.As(err, &network) {
				return nil, err
			} else if err != nil {
				return nil, errorf(ErrParam, "%v", err)
			}
		}
		return f(s, p)
	}
}

func (s *Server) addFault(f fabric.Fault) (any, error) {
	id, err := s.network.AddFault(f)
	return faultID{id}, err
}

func (s *Server) list(none) (any, error) {
	all := make([]DeviceStatus, 0, len(s.devices))
	for _, d := range s.devices {
		status := DeviceStatus{Name: d.Name}
		if d.Firmware != nil {
			status.EQs = d.Firmware.EQs()
		}
		if d.Counters != nil {
			var err error
			if status.Counters, err = json.Marshal(d.Counters()); err != nil {
				return nil, errorf(ErrRefused, "counters of %q: %v", d.Name, err)
			}
		}
		all = append(all, status)
	}
	return all, nil
}

// device returns a device that supports a method.
func (s *Server) device(name string, able func(*Device) bool) (*Device, error) {
	for _, d := range s.devices {
		switch {
		case d.Name != name:
		case !able(d):
			return nil, errorf(ErrRefused, "device %q does not support this", name)
		default:
			return d, nil
		}
	}
	return nil, errorf(ErrUnknown, "device %q: the method devices lists the devices", name)
}

func (s *Server) firmware(name string) (Firmware, error) {
	d, err := s.device(name, func(d *Device) bool { return d.Firmware != nil })
	if err != nil {
		return nil, err
	}
	return d.Firmware, nil
}

// checkCount refuses numbers that would have no effect.
func checkCount(skip, count int) error {
	if skip < 0 || count < 1 {
		return errorf(ErrParam, "skip is %d and count %d: want skip >= 0 and count >= 1", skip, count)
	}
	return nil
}

func (s *Server) failCommand(p commandParam) (any, error) {
	f, err := s.firmware(p.Device)
	if err == nil {
		err = checkCount(p.Skip, p.Count)
	}
	if err == nil && p.Status == 0 {
		err = errorf(ErrParam, "status 0 is success")
	}
	if err != nil {
		return nil, err
	}
	return nil, f.FailCommand(p.Opcode, p.Status, p.Syndrome, p.Skip, p.Count)
}

func (s *Server) injectCompletion(p completionParam) (any, error) {
	d, err := s.device(p.Device, func(d *Device) bool { return d.Engine != nil })
	if err == nil {
		err = checkCount(p.Skip, p.Count)
	}
	if err == nil && p.Syndrome == transport.OK {
		err = errorf(ErrParam, "syndrome 0 is success")
	}
	if err != nil {
		return nil, err
	}
	return nil, d.Engine.InjectCompletion(p.QPN, p.Syndrome, p.Vendor, p.Skip, p.Count)
}

func (s *Server) setHealth(p healthParam) (any, error) {
	f, err := s.firmware(p.Device)
	if err == nil {
		f.SetHealth(p.Syndrome)
	}
	return nil, err
}

func (s *Server) setGone(p goneParam) (any, error) {
	f, err := s.firmware(p.Device)
	if err == nil {
		f.SetGone(p.Gone)
	}
	return nil, err
}

func (s *Server) overrunEQ(p queueParam) (any, error) {
	f, err := s.firmware(p.Device)
	if err == nil && !f.OverrunEQ(p.Number) {
		err = errorf(ErrUnknown, "event queue %d of %q: there are %v", p.Number, p.Device, f.EQs())
	}
	return nil, err
}

func (s *Server) slot(p deviceParam, do func(Slot)) (any, error) {
	d, err := s.device(p.Device, func(d *Device) bool { return d.Slot != nil })
	if err == nil {
		do(d.Slot)
	}
	return nil, err
}
