package control

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/goverbs/goverbs/internal/sim/connectx/fabric"
	"github.com/goverbs/goverbs/internal/sim/connectx/transport"
)

// A Client sends requests to a Server. Its methods may be called concurrently;
// requests are sent one at a time. Errors of the server have type *Error. After
// any other error the client cannot be used any more.
type Client struct {
	// Timeout bounds a request; 30 seconds if zero.
	Timeout time.Duration

	mu    sync.Mutex
	conn  net.Conn
	lines *bufio.Reader
	id    int
}

// Dial connects to the socket of a server.
func Dial(path string) (*Client, error) {
	conn, err := net.Dial("unix", path)
	if err != nil {
		return nil, fmt.Errorf("control: %w", err)
	}
	return NewClient(conn), nil
}

// NewClient returns a client for a connection to a server.
func NewClient(conn net.Conn) *Client {
	return &Client{conn: conn, lines: bufio.NewReader(conn)}
}

// Close closes the connection.
func (c *Client) Close() error { return c.conn.Close() }

// Ports returns the network's ports with their counters. Method "ports".
func (c *Client) Ports() (all []fabric.PortStatus, err error) {
	err = c.do("ports", none{}, &all)
	return all, err
}

// SetLink sets the link state of a port. Method "set-link": port, up.
func (c *Client) SetLink(port string, up bool) error {
	return c.do("set-link", linkParam{port, up}, nil)
}

// Faults returns the network's faults with their counters. Method "faults".
func (c *Client) Faults() (all []fabric.FaultStatus, err error) {
	err = c.do("faults", none{}, &all)
	return all, err
}

// AddFault adds a fault and returns its id. Its Match must not have functions,
// which cannot be encoded. Method "add-fault": the members of [fabric.Fault];
// the result has the id.
func (c *Client) AddFault(f fabric.Fault) (id int, err error) {
	if f.Match.Frame != nil || f.Match.Packet != nil {
		return 0, errorf(ErrParam, "a function in a Match cannot be sent over a socket: add the fault to the network itself")
	}
	var result faultID
	err = c.do("add-fault", f, &result)
	return result.ID, err
}

// RemoveFault removes a fault. Method "remove-fault": id.
func (c *Client) RemoveFault(id int) error { return c.do("remove-fault", faultID{id}, nil) }

// ClearFaults removes all faults of the network. Method "clear-faults".
func (c *Client) ClearFaults() error { return c.do("clear-faults", none{}, nil) }

// Devices returns the devices with their event queues and counters. Method
// "devices".
func (c *Client) Devices() (all []DeviceStatus, err error) {
	err = c.do("devices", none{}, &all)
	return all, err
}

// FailCommand makes the next count commands of an opcode fail with a status and
// a syndrome, after skip others. Method "fail-command": device, opcode, status,
// syndrome, skip, count.
func (c *Client) FailCommand(device string, opcode uint16, status uint8, syndrome uint32, skip, count int) error {
	return c.do("fail-command", commandParam{device, opcode, status, syndrome, skip, count}, nil)
}

// InjectCompletion makes the next count completions of a queue pair errors,
// after skip others. Number 0 means any queue pair. Method "inject-cqe":
// device, qpn, syndrome, vendor, skip, count.
func (c *Client) InjectCompletion(device string, qpn uint32, syndrome transport.Syndrome, vendor uint8, skip,
	count int) error {
	return c.do("inject-cqe", completionParam{device, qpn, syndrome, vendor, skip, count}, nil)
}

// SetHealth makes the firmware fail with a syndrome; 0 makes it healthy again.
// Method "set-health": device, syndrome.
func (c *Client) SetHealth(device string, syndrome uint8) error {
	return c.do("set-health", healthParam{device, syndrome}, nil)
}

// SetGone makes the device's registers read as ones, as after a bus failure.
// The device stays in its slot and keeps its state. Method "set-gone": device,
// gone.
func (c *Client) SetGone(device string, gone bool) error {
	return c.do("set-gone", goneParam{device, gone}, nil)
}

// OverrunEQ makes an event queue overrun.
// Method "overrun-eq": device, number.
func (c *Client) OverrunEQ(device string, number uint32) error {
	return c.do("overrun-eq", queueParam{device, number}, nil)
}

// RemoveDevice removes the device from its slot by surprise. Method
// "remove-device": device.
func (c *Client) RemoveDevice(device string) error {
	return c.do("remove-device", deviceParam{device}, nil)
}

// InsertDevice inserts a device that RemoveDevice removed. A machine finds it
// when it rescans its bus. Method "insert-device": device.
func (c *Client) InsertDevice(device string) error {
	return c.do("insert-device", deviceParam{device}, nil)
}

// do sends a request and waits for its response.
func (c *Client) do(method string, params, result any) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	timeout := c.Timeout
	if timeout == 0 {
		timeout = 30 * time.Second
	}
	err := c.conn.SetDeadline(time.Now().Add(timeout))
	if err == nil {
		err = c.exchange(method, params, result)
	}
	var refused *Error
	if err != nil && !errors.As(err, &refused) {
		return fmt.Errorf("control: %s: %w", method, err)
	}
	return err
}

func (c *Client) exchange(method string, params, result any) error {
	c.id++
	line, err := json.Marshal(struct {
		ID     int    `json:"id"`
		Method string `json:"method"`
		Params any    `json:"params"`
	}{c.id, method, params})
	if err != nil {
		return err
	}
	if _, err := c.conn.Write(append(line, '\n')); err != nil {
		return err
	}
	if line, err = c.lines.ReadBytes('\n'); err != nil {
		return err
	}
	var r response
	if err := json.Unmarshal(line, &r); err != nil {
		return err
	}
	if r.Error != nil {
		return r.Error
	}
	if string(r.ID) != fmt.Sprint(c.id) {
		return fmt.Errorf("response to request %s, want %d", r.ID, c.id)
	}
	if result == nil {
		return nil
	}
	return json.Unmarshal(r.Result, result)
}
