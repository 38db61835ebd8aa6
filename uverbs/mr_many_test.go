package uverbs

import (
	"bytes"
	"testing"

	"github.com/goverbs/goverbs/internal/driver"
	"github.com/goverbs/goverbs/internal/ioctl"
	"golang.org/x/sys/unix"
)

// A reach has the memory of a Context's MRs, and the access of one queue to it.
type reach struct {
	mrs *driver.MRs
	driver.MRUser
}

func reached(c *Context) *reach {
	m := &reach{mrs: new(driver.MRs)}
	c.memory = m.mrs
	m.Open(c.memory)
	return m
}

// enter, follow and leave change m as the registration, change and closing of the MR of r do.
func addMR(m *driver.MRs, r *registration)     { r.entry = m.Add(r.view.region()) }
func replaceMR(m *driver.MRs, r *registration) { r.entry = m.Replace(r.entry, r.view.region()) }
func removeMR(m *driver.MRs, r *registration)  { m.Remove(r.entry) }

// TestMRs checks that Store, Room and Load access the memory that the key refers to at that moment,
// and fail if there is none.
func TestMRs(t *testing.T) {
	r := newRig(t)
	r.pageable()
	m := reached(r.c)
	pd := good(r.c.AllocPD())(t)
	mr := good(pd.Alloc(100, LocalWrite|OnDemand))(t)
	text := []byte("text")
	try := func(what string, want bool, lkey uint32, addr uint64) {
		t.Helper()
		if ok := m.Store(lkey, addr, text); ok != want {
			t.Errorf("%s: Store returns %v", what, ok)
		}
		if b := m.Room(lkey, addr, uint32(len(text))); b != nil && (!want || addressOf(b) != addr || len(b) != len(text)) {
			t.Errorf("%s: there is room at %#x for %d bytes, want a result of %v", what, addressOf(b), len(b), want)
		}
		if got := make([]byte, len(text)); m.Load(lkey, addr, got) != want || want && !bytes.Equal(got, text) {
			t.Errorf("%s: %q is loaded, want a result of %v", what, got, want)
		}
	}
	try("the first bytes", true, mr.LKey(), mr.Addr())
	try("the last bytes", true, mr.LKey(), mr.Addr()+96)
	try("beyond the last", false, mr.LKey(), mr.Addr()+97)
	try("before the first", false, mr.LKey(), mr.Addr()-1)
	try("far beyond", false, mr.LKey(), mr.Addr()+1<<63)
	try("no key", false, mr.LKey()+1<<8, mr.Addr())
	try("no key beside one", false, mr.LKey()^1, mr.Addr())
	if b := mr.Bytes(); !bytes.HasPrefix(b, text) || !bytes.HasSuffix(b, text) {
		t.Errorf("the memory has %q", b)
	}

	other := make([]byte, 50)
	was := mr.LKey()
	check(t, mr.Rereg(ReregTranslation, nil, other, 0))
	try("moved memory", true, mr.LKey(), mr.Addr()+46)
	if !bytes.HasSuffix(other, text) {
		t.Errorf("the new memory has %q", other)
	}
	if was != mr.LKey() {
		try("a key that was", false, was, mr.Addr())
	}
	check(t, mr.Rereg(ReregAccess, nil, nil, RemoteRead))
	if m.Store(mr.LKey(), mr.Addr(), text) || m.Room(mr.LKey(), mr.Addr(), 1) != nil ||
		!m.Load(mr.LKey(), mr.Addr(), text) {
		t.Error("memory that must not be written is, or is not read")
	}
	text = []byte("text")
	check(t, mr.Close())
	try("closed memory", false, mr.LKey(), mr.Addr())

	// An implicit MR has all memory of the process: some is not mapped, some read-only.
	whole := good(pd.RegImplicit(OnDemand | LocalWrite))(t)
	page := unix.Getpagesize()
	b := good(unix.Mmap(-1, 0, 2*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON))(t)
	try("a page", true, whole.LKey(), addressOf(b)+1)
	if !bytes.Equal(b[1:5], text) {
		t.Errorf("the page has %q", b[:5])
	}
	check(t, unix.Mprotect(b[page:], unix.PROT_READ))
	if m.Store(whole.LKey(), addressOf(b)+uint64(page)-2, text) {
		t.Error("a page and one to be read alone are written")
	}
	check(t, unix.Munmap(b))
	try("no memory", false, whole.LKey(), addressOf(b))
	check(t, whole.Close())
}

// TestMRsPageable checks that Pageable returns true from the first MR on that is registered on
// demand, becomes so, or belongs to another process.
func TestMRsPageable(t *testing.T) {
	for name, v := range map[string]mrView{"on demand": {onDemand: true}, "foreign": {foreign: true}} {
		m, r := new(driver.MRs), &registration{view: &mrView{lkey: 0x700}}
		if addMR(m, r); m.Pageable() {
			t.Error("pages of pinned memory may be absent")
		}
		v.lkey = 0x700
		r.view = &v
		if replaceMR(m, r); !m.Pageable() {
			t.Errorf("%s, reregistered: no page is absent", name)
		}
		if removeMR(m, r); !m.Pageable() { // receives may still be posted
			t.Errorf("%s, closed: no page is absent", name)
		}
		m, r = new(driver.MRs), &registration{view: &v}
		if addMR(m, r); !m.Pageable() {
			t.Errorf("%s: no page is absent", name)
		}
	}
	if (*driver.MRs)(nil).Pageable() {
		t.Error("pages of no memory are absent")
	}
}

// TestMRsNeighbours checks that keys that differ only in the lowest byte refer to separate memory,
// whatever the order in which they are added and removed.
func TestMRsNeighbours(t *testing.T) {
	m := reached(new(Context))
	var all [4]*registration
	for i := range all {
		b := make([]byte, 8)
		all[i] = &registration{view: &mrView{buf: b, addr: 8, access: LocalWrite, lkey: 0x700 + uint32(i), foreign: i == 1}}
		addMR(m.mrs, all[i])
	}
	here := [4]bool{true, true, true, true}
	for _, goes := range []int{1, 3, 0, 2} {
		if foreign := m.mrs.Foreign(); foreign != here[1] {
			t.Errorf("with %v there is foreign memory: %v", here, foreign)
		}
		removeMR(m.mrs, all[goes])
		here[goes] = false
		for i, r := range all {
			if ok := m.Store(0x700+uint32(i), 8, []byte{byte(i)}); ok != here[i] || ok && r.view.buf[0] != byte(i) {
				t.Errorf("after %d has left, %d is written: %v", goes, i, ok)
			}
		}
	}
}

// TestMRsOfOneKey checks that a key refers to the newer MR if the kernel reuses it before Close of
// the older MR has finished.
func TestMRsOfOneKey(t *testing.T) {
	m := reached(new(Context))
	made := func() *registration {
		r := &registration{view: &mrView{buf: make([]byte, 8), size: 8, room: 8, access: LocalWrite, lkey: 0x700}}
		addMR(m.mrs, r)
		return r
	}
	old, young := made(), made()
	if !m.Store(0x700, 0, []byte("text")) || string(young.view.buf[:4]) != "text" || old.view.buf[0] != 0 {
		t.Errorf("the closed one has %q, the other %q", old.view.buf, young.view.buf)
	}
	removeMR(m.mrs, old)
	if !m.Store(0x700, 4, []byte("more")) || string(young.view.buf) != "textmore" {
		t.Errorf("the other has %q", young.view.buf)
	}
}

// A spy calls a function before each command of the kernel.
type spy struct {
	ioctl.Kernel
	told func()
}

func (s *spy) Ioctl(c ioctl.Call) error { s.told(); return s.Kernel.Ioctl(c) }

// TestStoreDuringRereg checks that data that arrives before or during a change of an MR is stored
// in the old memory.
func TestStoreDuringRereg(t *testing.T) {
	r := bareRig()
	fd := good(unix.MemfdCreate("uverbs0", unix.MFD_CLOEXEC))(t)
	check(t, unix.Ftruncate(fd, 1<<20))
	r.k.Set(func() { r.k.Rereg = uint32(ReregAccess | ReregTranslation) })
	k := &spy{r.k, func() {}}
	c := good(newContext(ioctl.NewFake(fd, "uverbs0", r.k.Driver, k),
		Device{Name: "fake0", Ports: 1, DriverID: fakeDriver}, r.p))(t)
	m := reached(c)
	mr := good(good(c.AllocPD())(t).Alloc(64, LocalWrite))(t)
	before, after := mr.Bytes(), make([]byte, 64)
	for _, change := range []func() error{
		func() error { return mr.Rereg(ReregAccess, nil, nil, LocalWrite|RemoteRead) },
		func() error { return mr.Rereg(ReregTranslation, nil, after, 0) },
	} {
		key, addr, stored := mr.LKey(), mr.Addr(), false
		k.told = func() { stored = m.Store(key, addr, []byte("text")) }
		clear(before)
		check(t, change())
		k.told = func() {}
		if !stored || string(before[:4]) != "text" {
			t.Errorf("stored: %v, %q", stored, before[:4])
		}
	}
	if !m.Store(mr.LKey(), mr.Addr(), []byte("text")) || string(after[:4]) != "text" {
		t.Errorf("then %q", after[:4])
	}
	check(t, c.Close())
	r.k.Close(t)
}
