package guestinit

import (
	"errors"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// A Reaper starts processes and reaps all that exit, including orphans that the
// kernel assigns to process 1. No other code in the process may wait for
// children: os/exec cannot be used.
type Reaper struct {
	mu      sync.Mutex
	waiting map[int]chan Ended
}

// Ended describes how a process ended.
type Ended struct {
	Status unix.WaitStatus
	Usage  unix.Rusage
}

// NewReaper returns a Reaper that runs until the process exits.
func NewReaper() *Reaper {
	r := &Reaper{waiting: make(map[int]chan Ended)}
	children := make(chan os.Signal, 1)
	signal.Notify(children, unix.SIGCHLD)
	go func() {
		for range children {
			r.collect()
		}
	}()
	return r
}

// Start starts a process, as does syscall.ForkExec. Its status is sent to the
// channel when it has ended.
func (r *Reaper) Start(path string, argv []string, attr *syscall.ProcAttr) (pid int, ended <-chan Ended, err error) {
	r.mu.Lock() // so that the process is not reaped before it is in the map
	defer r.mu.Unlock()
	pid, err = syscall.ForkExec(path, argv, attr)
	if err != nil {
		return 0, nil, err
	}
	c := make(chan Ended, 1)
	r.waiting[pid] = c
	return pid, c, nil
}

// Signal sends a signal to a process started by Start, or to its group, unless
// it has been reaped.
func (r *Reaper) Signal(pid int, sig syscall.Signal, group bool) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if group {
		return unix.Kill(-pid, sig) // a group may outlive its leader
	}
	if r.waiting[pid] == nil {
		return os.ErrProcessDone
	}
	return unix.Kill(pid, sig)
}

// collect reaps all children that have exited.
func (r *Reaper) collect() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for {
		var e Ended
		pid, err := unix.Wait4(-1, &e.Status, unix.WNOHANG, &e.Usage)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil || pid <= 0 {
			return // no child has exited, or none exists
		}
		if c := r.waiting[pid]; c != nil {
			delete(r.waiting, pid)
			c <- e
		}
	}
}
