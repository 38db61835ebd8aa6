package vm

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"sync"
	"time"
)

// qmpLimit bounds the time of a QMP command.
const qmpLimit = 30 * time.Second

// A QMPError is QEMU's error response to a command.
type QMPError struct {
	Command string
	Class   string `json:"class"`
	Desc    string `json:"desc"`
}

// Error implements error.
func (e *QMPError) Error() string {
	return fmt.Sprintf("vm: QEMU command %s: %s (%s)", e.Command, e.Desc, e.Class)
}

// monitor implements QMP, QEMU's machine protocol (docs/interop/qmp-spec).
type monitor struct {
	conn    *os.File
	mu      sync.Mutex // one command at a time
	ready   bool       // capabilities are negotiated
	id      int        // of the last command
	removal sync.Mutex // one removal of a device at a time
	replies chan qmpReply
	events  chan string
	ended   chan struct{}
}

type qmpReply struct {
	Return json.RawMessage `json:"return"`
	Error  *QMPError       `json:"error"`
	Event  string          `json:"event"`
	Data   json.RawMessage `json:"data"`
	QMP    json.RawMessage `json:"QMP"` // the greeting
	ID     int             `json:"id"`
}

func newMonitor(conn *os.File) *monitor {
	return &monitor{conn: conn, replies: make(chan qmpReply, 16), events: make(chan string, 256),
		ended: make(chan struct{})}
}

// follow reads QEMU's messages until it exits.
func (m *monitor) follow() {
	defer close(m.ended)
	for lines := json.NewDecoder(bufio.NewReader(m.conn)); ; {
		var a qmpReply
		if err := lines.Decode(&a); err != nil {
			return // QEMU has exited; ended wakes the waiters
		}
		switch {
		case a.QMP != nil:
		case a.Event == "DEVICE_DELETED":
			var d struct {
				Device string `json:"device"`
			}
			if json.Unmarshal(a.Data, &d) == nil && d.Device != "" {
				m.deleted(d.Device)
			}
		case a.Event != "":
		default:
			m.replies <- a
		}
	}
}

// deleted records that a device was removed; the oldest record may be lost.
func (m *monitor) deleted(device string) {
	for {
		select {
		case m.events <- device:
			return
		default:
			select {
			case <-m.events:
			default:
			}
		}
	}
}

// forgetDeleted drops the records of earlier removals.
func (m *monitor) forgetDeleted() {
	for {
		select {
		case <-m.events:
		default:
			return
		}
	}
}

// execute runs one command.
func (m *monitor) execute(command string, args, reply any) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.locked(command, args, reply)
}

func (m *monitor) locked(command string, args, reply any) error {
	if !m.ready && command != "qmp_capabilities" {
		if err := m.locked("qmp_capabilities", nil, nil); err != nil {
			return err
		}
		m.ready = true
	}
	m.id++
	request := map[string]any{"execute": command, "id": m.id}
	if args != nil {
		request["arguments"] = args
	}
	b, err := json.Marshal(request)
	if err != nil {
		return fmt.Errorf("vm: QEMU command %s: %w", command, err)
	}
	if _, err := m.conn.Write(b); err != nil {
		return fmt.Errorf("vm: QEMU command %s: %w", command, err)
	}
	return m.await(command, reply)
}

// await waits for the response to the last command. It drops responses to
// earlier ones that timed out.
func (m *monitor) await(command string, reply any) error {
	limit := time.After(qmpLimit)
	for {
		select {
		case a := <-m.replies:
			switch {
			case a.ID != m.id:
				continue
			case a.Error != nil:
				a.Error.Command = command
				return a.Error
			case reply != nil:
				return json.Unmarshal(a.Return, reply)
			}
			return nil
		case <-m.ended:
			if command == "quit" {
				return nil
			}
			return fmt.Errorf("vm: QEMU command %s: QEMU has exited", command)
		case <-limit:
			return fmt.Errorf("vm: QEMU command %s: no response after %v", command, qmpLimit)
		}
	}
}

// state returns the machine's state, for an error message.
func (m *monitor) state() string {
	var s struct {
		Status string `json:"status"`
	}
	if err := m.execute("query-status", nil, &s); err != nil {
		return "QEMU does not respond either"
	}
	return "QEMU reports " + s.Status
}

// QMP runs a command of QEMU's machine protocol, such as "query-status".
// Arguments and reply are encoded by encoding/json; both may be nil.
func (g *Guest) QMP(command string, args, reply any) error {
	if err := g.Err(); err != nil {
		return err
	}
	return g.qmp.execute(command, args, reply)
}

// SetLink sets the link state of a NIC, by its index in Config.NICs.
func (g *Guest) SetLink(nic int, up bool) error {
	return g.QMP("set_link", map[string]any{"name": nicID(nic), "up": up}, nil)
}

// DeviceAdd hot-plugs a PCI device: driver and options are those of QEMU's
// -device. The device goes into a free hot-plug slot unless the options name a
// bus.
func (g *Guest) DeviceAdd(driver, id string, options map[string]any) error {
	args := map[string]any{"driver": driver, "id": id}
	for k, v := range options {
		args[k] = v
	}
	if args["bus"] != nil {
		return g.QMP("device_add", args, nil)
	}
	var last error
	for i := range hotplugSlots {
		args["bus"] = hotplugBus(i)
		if last = g.QMP("device_add", args, nil); last == nil {
			return nil
		}
	}
	return last
}

// DeviceDel requests the guest to release a device, and waits until it was
// removed. A device of VFIOUser or AddVFIOUser is refused.
func (g *Guest) DeviceDel(id string) error {
	if g.isVFIOUser(id) {
		return fmt.Errorf("vm: device %s cannot be removed: QEMU (11.1) would abort; "+
			"remove it in the guest (/sys/bus/pci/devices/…/remove, and rescan to find it again)", id)
	}
	g.qmp.removal.Lock()
	defer g.qmp.removal.Unlock()
	g.qmp.forgetDeleted()
	if err := g.QMP("device_del", map[string]any{"id": id}, nil); err != nil {
		return err
	}
	limit := time.After(qmpLimit)
	for {
		select {
		case removed := <-g.qmp.events:
			if removed == id {
				return nil
			}
		case <-g.dead:
			return g.Err()
		case <-limit:
			return fmt.Errorf("vm: the guest does not release device %s", id)
		}
	}
}
