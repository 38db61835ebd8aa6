package uverbs

import (
	"github.com/goverbs/goverbs/internal/driver"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// TestMRUserIsAwaited checks that calls that release memory wait for queues that may be writing to
// it.
func TestMRUserIsAwaited(t *testing.T) {
	for name, letGo := range map[string]func(*reach, *MR) error{
		"Close": func(_ *reach, mr *MR) error { return mr.Close() },
		"Rereg": func(_ *reach, mr *MR) error { return mr.Rereg(ReregTranslation, nil, make([]byte, 8), 0) },
		"Leave": func(m *reach, _ *MR) error { m.Leave(); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.pageable()
			m := reached(r.c)
			other := new(driver.MRUser) // another queue, which is idle
			other.Open(m.mrs)
			other.Begin()
			other.End()
			b := make([]byte, 8)
			mr := good(good(r.c.AllocPD())(t).RegMR(b, LocalWrite))(t)
			key, addr := mr.LKey(), mr.Addr()
			m.Begin()
			if !m.Store(key, addr, []byte("before")) {
				t.Fatal("nothing is stored")
			}
			done := make(chan error)
			go func() { done <- letGo(m, mr) }()
			select {
			case err := <-done:
				t.Errorf("it did not wait: %v", err)
				return
			case <-time.After(20 * time.Millisecond): // ten times as long as the call would take
			}
			if name != "Rereg" && m.Store(key, addr, []byte("beside")) {
				t.Error("memory that is being let go is written to")
			}
			m.End()
			check(t, <-done)
			m.Begin()
			if m.Store(key, addr, []byte("after")) {
				t.Error("memory that has been let go is written to")
			}
			m.End()
			if string(b[:6]) != "before" {
				t.Errorf("the memory has %q", b)
			}
		})
	}
}

// TestMRUserRaces stores to memory from several queues while MRs and queues are added and removed.
// The race detector checks that nothing writes to the memory after Close.
func TestMRUserRaces(t *testing.T) {
	r := newRig(t)
	m := reached(r.c)
	pd := good(r.c.AllocPD())(t)
	var now atomic.Pointer[MR]
	var stored atomic.Int64
	var over atomic.Bool
	var users sync.WaitGroup
	end := func() {
		over.Store(true)
		users.Wait()
	}
	defer end()
	for i := range 3 {
		users.Go(func() {
			for u := new(driver.MRUser); !over.Load(); runtime.Gosched() {
				u.Open(m.mrs)
				for range 5 {
					u.Begin()
					for range 2 {
						if mr := now.Load(); mr != nil && u.Store(mr.LKey(), mr.Addr()+uint64(i), []byte{1}) {
							stored.Add(1)
						}
					}
					u.End()
				}
				u.Leave()
				u = new(driver.MRUser)
			}
		})
	}
	for range 200 {
		b := make([]byte, 8)
		mr := good(pd.RegMR(b, LocalWrite))(t)
		before := stored.Load()
		now.Store(mr)
		until(func() bool { return stored.Load() > before })
		check(t, mr.Close())
		clear(b)
	}
	end()
}
