package cm

import (
	"context"
	"errors"
	"os"
	"sync"
	"time"

	"github.com/goverbs/goverbs/internal/machine"
	"github.com/goverbs/goverbs/uverbs"
	"golang.org/x/sys/unix"
)

// A pump is the node of the synchronous ids, with the goroutine that reads its
// events. It exists as long as it has members. The goroutine only passes events on:
// it issues no command and acquires no lock that is held during a command.
type pump struct {
	node
	machine machine.Machine // nil: the real one
	done    chan struct{}
	members map[*SyncID]struct{} // guarded by pumps
	err     error                // guarded by pumps: if set, no more events are read
}

// pumps has the pumps of the process. There is one, unless tests have several machines in memory.
var pumps struct {
	sync.Mutex
	running map[machine.Machine]*pump
}

// joinPump adds a new SyncID to the machine's pump.
func joinPump(s *SyncID) error {
	pumps.Lock()
	defer pumps.Unlock()
	m := machine.Current()
	p := pumps.running[m]
	if p == nil {
		file, err := openFile()
		if err != nil {
			return explainOpen(err)
		}
		p = &pump{node: node{file: file}, machine: m, done: make(chan struct{}), members: make(map[*SyncID]struct{})}
		if pumps.running == nil {
			pumps.running = make(map[machine.Machine]*pump)
		}
		pumps.running[m] = p
		go p.run()
	}
	p.add(s)
	return nil
}

// addRequest adds the SyncID of a request to its listener's pump.
func (p *pump) addRequest(s *SyncID) {
	pumps.Lock()
	defer pumps.Unlock()
	p.add(s)
	if p.err != nil {
		s.stopEvents(p.err)
	}
}

func (p *pump) add(s *SyncID) {
	s.pump = p
	p.members[s] = struct{}{}
}

// remove removes a SyncID, if it is a member, and ends the pump with its last member.
// It must not be called from the pump's goroutine.
func (p *pump) remove(s *SyncID) error {
	pumps.Lock()
	_, member := p.members[s]
	delete(p.members, s)
	if !member || len(p.members) > 0 {
		pumps.Unlock()
		return nil
	}
	p.retire()
	pumps.Unlock()
	err := p.file.SetReadDeadline(time.Unix(1, 0))
	<-p.done
	return wrap("close", "rdma_cm", errors.Join(err, p.rejects.wait(), p.file.Close()), "")
}

func (p *pump) run() {
	defer close(p.done)
	for {
		p.rejects.waitRoom(context.Background(), nil)
		r, err := p.read(nil)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return // there are no members left
		}
		if err != nil {
			p.fail(err)
			return
		}
		if r != nil {
			r.id.forward(r)
		}
	}
}

// retire makes new ids get a new pump. The caller holds pumps.
func (p *pump) retire() {
	if pumps.running[p.machine] == p {
		delete(pumps.running, p.machine)
	}
}

// fail ends the waits of all members with an error. New ids get a new pump.
func (p *pump) fail(err error) {
	pumps.Lock()
	defer pumps.Unlock()
	p.retire()
	p.err = wrap(opWait, "rdma_cm", err, "")
	if e, ok := p.err.(*Error); ok && e.Kind == nil {
		e.Kind, e.Errno, e.Detail = uverbs.ErrDeviceGone, unix.EIO, err.Error()
	}
	for s := range p.members {
		s.stopEvents(p.err)
		s.stopWaits()
	}
}
