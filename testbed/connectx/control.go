package connectx

import "fmt"

// SetPort changes the port state and notifies the driver of a change.
func (d *Device) SetPort(up bool) { d.hca.SetUp(up) }

// FailCommand makes the next count commands of an opcode fail with a status and
// a syndrome, after skip of them have succeeded. A reset of the device ends it.
// It returns an error if too many failures are pending.
func (d *Device) FailCommand(opcode uint16, status uint8, syndrome uint32, skip, count int) error {
	if len(d.failures) >= maxFailures {
		return fmt.Errorf("connectx: %d command failures are pending: a reset of the device removes them", maxFailures)
	}
	d.failures = append(d.failures, &failure{opcode, status, syndrome, skip, count})
	return nil
}

// maxFailures bounds the number of pending failures.
const maxFailures = 1024

// SetHealth makes the firmware fail with a syndrome: it executes no more
// commands, and the health buffer has the syndrome. 0 makes it healthy again,
// as the driver's reset of the function does.
func (d *Device) SetHealth(syndrome uint8) {
	d.health.syndrome = syndrome
	d.health.severity = healthCritical
}

// healthCritical is the severity of a failure.
const healthCritical = 2

// SetGone makes a plugged-in device appear removed: all registers read as ones,
// and stores have no effect.
func (d *Device) SetGone(gone bool) { d.gone = gone }

// OverrunEQ puts an event queue into the overrun state: it gets no more events.
// It reports whether the queue exists.
func (d *Device) OverrunEQ(number uint32) bool {
	if number >= maxEQs || d.eqs.queues[number] == nil {
		return false
	}
	d.eqs.queues[number].overrun = true
	return true
}

// EQs returns the numbers of the existing event queues.
func (d *Device) EQs() []uint32 {
	var numbers []uint32
	for n, eq := range d.eqs.queues {
		if eq != nil {
			numbers = append(numbers, uint32(n))
		}
	}
	return numbers
}
