package verbstest

import (
	"context"
	"runtime/pprof"
	"sync"
	"unsafe"

	"github.com/goverbs/goverbs/internal/machine"
)

// A labelSet is the runtime's representation of a goroutine's profiler labels.
type labelSet = unsafe.Pointer

// The labels of a goroutine are inherited by those that it starts. The runtime keeps these two
// functions for packages that use them in this way (go.dev/issue/67401).

//go:linkname getLabels runtime/pprof.runtime_getProfLabel
func getLabels() labelSet

//go:linkname setLabels runtime/pprof.runtime_setProfLabel
func setLabels(labels labelSet)

// machines has the machines in memory by the labels of their goroutines.
var machines struct {
	sync.RWMutex
	byLabels map[labelSet]*Machine
	ended    map[labelSet]bool // machines that have been removed
}

// current returns the machine of the calling goroutine: the one that its labels name, or else the
// only one. It is nil if there are several, or if the machine of the labels has been removed.
func current() *Machine {
	machines.RLock()
	defer machines.RUnlock()
	labels := getLabels()
	if m := machines.byLabels[labels]; m != nil || len(machines.byLabels) != 1 || machines.ended[labels] {
		return m
	}
	for _, m := range machines.byLabels {
		return m
	}
	return nil
}

// currentMachine is current for package machine.
func currentMachine() machine.Machine {
	if m := current(); m != nil {
		return m.host
	}
	return nowhere{}
}

// addMachine makes labels for a new machine.
func addMachine(m *Machine) {
	before := getLabels()
	pprof.SetGoroutineLabels(pprof.WithLabels(context.Background(), pprof.Labels(machineLabel, m.label())))
	m.labels = getLabels()
	setLabels(before)
	machines.Lock()
	defer machines.Unlock()
	if len(machines.byLabels) == 0 {
		machines.byLabels, machines.ended = map[labelSet]*Machine{}, map[labelSet]bool{}
		machine.Replace(currentMachine)
	}
	machines.byLabels[m.labels] = m
}

// removeMachine removes a machine. Without machines in memory, programs use the real one.
func removeMachine(m *Machine) {
	machines.Lock()
	defer machines.Unlock()
	delete(machines.byLabels, m.labels)
	machines.ended[m.labels] = true
	if len(machines.byLabels) == 0 {
		machine.Replace(nil)
	}
}

// enter puts the calling goroutine on the machine. The result puts it back.
func (m *Machine) enter() (leave func()) {
	before := getLabels()
	setLabels(m.labels)
	return func() { setLabels(before) }
}
