package connectx

import "fmt"

// SetPort takes the port down or up, and tells the driver if that is a change.
func (d *Device) SetPort(up bool) { d.hca.SetUp(up) }

// FailCommand makes count commands of an opcode end with a status and a syndrome
// instead of being carried out, after skip of them have passed. A reset ends it.
// An error says that too many are waiting already.
func (d *Device) FailCommand(opcode uint16, status uint8, syndrome uint32, skip, count int) error {
	if len(d.failures) >= maxFailures {
		return fmt.Errorf("connectx: %d failures of commands are waiting: a reset of the device ends them", maxFailures)
	}
	d.failures = append(d.failures, &failure{opcode, status, syndrome, skip, count})
	return nil
}

// maxFailures bounds what is waiting.
const maxFailures = 1024

// SetHealth makes the firmware fail with a syndrome: it carries out no commands
// any more, and the driver finds the syndrome in the health buffer. 0 makes it
// healthy again, as the driver's reset of the function does.
func (d *Device) SetHealth(syndrome uint8) {
	d.health.syndrome = syndrome
	d.health.severity = healthCritical
}

// healthCritical is the severity of a failure.
const healthCritical = 2

// SetGone makes the device look as if it was pulled out while it stays plugged
// in: all registers read as ones, and stores go nowhere.
func (d *Device) SetGone(gone bool) { d.gone = gone }

// OverrunEQ makes an event queue look as if the host had not kept up with it: it
// gets no events any more. False: there is no queue of this number.
func (d *Device) OverrunEQ(number uint32) bool {
	if number >= maxEQs || d.eqs.queues[number] == nil {
		return false
	}
	d.eqs.queues[number].overrun = true
	return true
}

// EQs are the numbers of the event queues that there are.
func (d *Device) EQs() []uint32 {
	var numbers []uint32
	for n, eq := range d.eqs.queues {
		if eq != nil {
			numbers = append(numbers, uint32(n))
		}
	}
	return numbers
}
