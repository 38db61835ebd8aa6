package connectx

import (
	"errors"
	"slices"

	"github.com/goverbs/goverbs/internal/sim/connectx/prm"
)

// A command is a firmware command.
type command struct {
	opcode  uint16
	name    string
	in, out *prm.Layout
	when    when
	run     func(d *Device, in, out []byte) error
}

// A when is the state of the device that a command requires.
type when uint8

const (
	always  when = iota
	enabled      // after ENABLE_HCA
	running      // after INIT_HCA
	inIB         // running, with an InfiniBand port
	inEth        // running, with an Ethernet port
	atFirst      // running, without versions of the interface
)

// commandOf returns the command with an opcode, or nil.
func commandOf(opcode uint16) *command { return byOpcode[opcode] }

var byOpcode = make(map[uint16]*command)

func init() {
	for _, table := range [][]command{hcaCommands, portCommands, objectCommands, qpCommands, srqCommands, ethCommands,
		flowCommands, uctxCommands, umemCommands, dctCommands, lagCommands, pacingCommands,
		generalCommands} {
		for i := range table {
			byOpcode[table[i].opcode] = &table[i]
		}
	}
}

// execute executes a command. The output always has n bytes.
func (d *Device) execute(in []byte, n int) []byte {
	opcode := uint16(prm.CmdOpcode.Get(in))
	c := commandOf(opcode)
	size := n
	if c != nil {
		in = append(in, make([]byte, max(0, c.in.Size-len(in)))...)
		size = max(n, c.out.Size)
	}
	out := make([]byte, size)
	d.owners.claimed = [memories]uint32{}
	err := d.injected(opcode)
	if err == nil {
		err = d.check(c, in)
	}
	if err == nil {
		err = c.run(d, in, out)
	}
	if err == nil {
		d.account(opcode, in, out)
	} else {
		clear(out)
		d.fail(opcode, out, err)
	}
	d.traceCommand(c, opcode, in, out, err)
	return out[:n]
}

// check reports whether a command may be executed now.
func (d *Device) check(c *command, in []byte) error {
	switch {
	case c == nil:
		return refuse(statusBadOpcode, reasonOpcode)
	case c.when >= enabled && !d.enabled:
		return refuse(statusBadSystemState, reasonNotEnabled)
	case c.when >= running && !d.running:
		return refuse(statusBadSystemState, reasonNotRunning)
	case c.when == inIB && d.config.LinkLayer != InfiniBand, c.when == inEth && d.config.LinkLayer != Ethernet:
		return refuse(statusBadOpcode, reasonLink)
	case c.when == atFirst && !d.config.NoISSI:
		return refuse(statusBadOpcode, reasonISSI)
	}
	if err := d.checkUser(in); err != nil {
		return err
	}
	return d.checkOwner(c.opcode, in)
}

// fail stores the output of a command that was refused.
func (d *Device) fail(opcode uint16, out []byte, err error) {
	var s status
	var syndrome uint64
	var r *refusal
	var f *failure
	switch {
	case errors.As(err, &f):
		s, syndrome = status(f.status), uint64(f.syndrome)
	case errors.As(err, &r):
		s, syndrome = r.status, uint64(opcode)<<16|uint64(r.reason)
	default:
		s, syndrome = engineStatus(err), uint64(opcode)<<16|uint64(reasonParam)
	}
	prm.CmdStatus.Set(out, uint64(s))
	prm.CmdSyndrome.Set(out, syndrome)
}

// A failure is an injected failure: see FailCommand.
type failure struct {
	opcode      uint16
	status      uint8
	syndrome    uint32
	skip, count int
}

// Error implements error.
func (f *failure) Error() string { return "injected" }

// injected returns the injected failure of a command, if any.
func (d *Device) injected(opcode uint16) error {
	for i, f := range d.failures {
		switch {
		case f.opcode != opcode:
		case f.skip > 0:
			f.skip--
		default:
			if f.count--; f.count <= 0 {
				d.failures = slices.Delete(d.failures, i, i+1)
			}
			return f
		}
	}
	return nil
}
