package uverbs

import (
	"errors"
	"runtime"
	"slices"
	"sync"
	"testing"

	"github.com/goverbs/goverbs/internal/driver"
	"golang.org/x/sys/unix"
)

// TestParentDomain checks that a parent domain is equivalent to its PD: objects of the two can be
// combined.
func TestParentDomain(t *testing.T) {
	r := newRig(t)
	b := r.bundle(t, false)
	before := r.k.Count("ALLOC_PD")
	td := good(r.c.AllocTD())(t)
	for _, d := range []*TD{nil, td} {
		p := good(good(b.pd.AllocParentDomain(ParentDomainConfig{TD: d}))(t).AllocParentDomain(ParentDomainConfig{TD: d}))(t)
		cq := good(r.c.CreateCQ(CQConfig{Entries: 16, PD: p}))(t)
		srq := good(p.CreateSRQ(SRQConfig{MaxWR: 4}))(t)
		qp := good(p.CreateQP(QPConfig{Type: RC, SendCQ: cq, MaxSendWR: 4, MaxRecvWR: 4}))(t)
		if single := d != nil; cq.single != single || srq.single != single || qp.single != single {
			t.Errorf("with %v: lockless: %v, %v and %v", d, cq.single, srq.single, qp.single)
		}
		if env := qp.env(); (env.TD != nil) != (d != nil) || qp.PD() != p || env.PD != &b.pd.driver {
			t.Errorf("with %v: the QP is of %v", d, env.TD)
		}
		check(t, qp.Connect(good(qp.Endpoint())(t)))
		mr := good(p.Alloc(64, LocalWrite))(t)
		good(qp.PostSend(SendWR{Opcode: OpSend, SGL: []SGE{b.mr.SGE(0, 1), mr.SGE(0, 1)}[:1]}))(t)
		mw := good(p.AllocMW(MWType1))(t)
		check(t, mw.Bind(b.qp, 1, 0, MWRange{MR: b.mr, Len: 8, Access: RemoteRead}))
		ud := good(b.pd.CreateQP(QPConfig{Type: UD, SendCQ: b.cq, MaxSendWR: 4}))(t)
		check(t, ud.Ready())
		ah := good(p.CreateAH(somewhere))(t)
		good(ud.PostSend(SendWR{Opcode: OpSend, AH: ah}))(t)
		if err := b.pd.Close(); !errors.Is(err, ErrBusy) {
			t.Errorf("PD.Close: %v", err)
		}
		if err := p.Close(); !errors.Is(err, ErrBusy) {
			t.Errorf("Close of a parent domain in use: %v", err)
		}
		for _, close := range []func() error{qp.Close, cq.Close, srq.Close, mr.Close, mw.Close, ud.Close, ah.Close, p.Close,
			p.Close} {
			check(t, close())
		}
	}
	if n := r.k.Count("ALLOC_PD") - before; n != 0 || slices.Contains(r.k.Log(), "PD.DESTROY") {
		t.Errorf("the kernel has made %d PDs for parent domains", n)
	}
}

// TestThreadDomain checks that a thread domain cannot be closed while objects use it, and that its
// registers are released at the end.
func TestThreadDomain(t *testing.T) {
	r := newRig(t)
	pd := good(r.c.AllocPD())(t)
	td := good(r.c.AllocTD())(t)
	p := good(pd.AllocParentDomain(ParentDomainConfig{TD: td}))(t)
	if err := td.Close(); !errors.Is(err, ErrBusy) {
		t.Errorf("TD.Close: %v", err)
	}
	other := newRig(t)
	foreign := good(other.c.AllocTD())(t)
	if _, err := pd.AllocParentDomain(ParentDomainConfig{TD: foreign}); !errors.Is(err, ErrInvalid) {
		t.Errorf("a TD of another Context: %v", err)
	}
	if _, err := other.c.CreateCQ(CQConfig{Entries: 1, PD: p}); !errors.Is(err, ErrInvalid) {
		t.Errorf("a CQ in a domain of another Context: %v", err)
	}
	check(t, p.Close())
	check(t, td.Close())
	if r.p.domains != 0 {
		t.Errorf("%d thread domains have not been given back", r.p.domains)
	}
	if _, err := pd.AllocParentDomain(ParentDomainConfig{TD: td}); !errors.Is(err, ErrClosed) {
		t.Errorf("a closed TD: %v", err)
	}
	good(pd.AllocParentDomain(ParentDomainConfig{TD: good(r.c.AllocTD())(t)}))(t)
	check(t, r.c.Close())
	if r.p.domains != 0 {
		t.Errorf("%d thread domains outlive their Context", r.p.domains)
	}
	again := newRig(t)
	again.p.mapError = errors.New("no register")
	if _, err := again.c.AllocTD(); err == nil {
		t.Error("a TD without a register")
	}
}

// TestRingMemory checks that the rings of a queue are in the memory that the parent domain's Alloc
// returns, if it is suitable.
func TestRingMemory(t *testing.T) {
	r := newRig(t)
	pd := good(r.c.AllocPD())(t)
	page := unix.Getpagesize()
	room := good(unix.Mmap(-1, 0, 2*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS))(t)
	defer func() { check(t, unix.Munmap(room)) }()
	room[5] = 1
	broke := errors.New("none left")
	var back int
	for name, c := range map[string]struct {
		give  []byte
		err   error
		want  error
		freed int
	}{
		"enough":      {give: room},
		"nothing":     {},
		"an error":    {err: broke, want: broke},
		"too little":  {give: room[:page-1], want: ErrInvalid, freed: page - 1},
		"not aligned": {give: room[8:], want: ErrInvalid, freed: 2*page - 8},
	} {
		back = 0
		d := good(pd.AllocParentDomain(ParentDomainConfig{
			Alloc: func(n, align int) ([]byte, error) {
				if n != page || align != page {
					t.Errorf("asked for %d bytes at a multiple of %d", n, align)
				}
				return c.give, c.err
			},
			Free: func(b []byte) { back += len(b) },
		}))(t)
		b, free, err := d.memory()("create QP", page)
		if !errors.Is(err, c.want) || (c.want == nil) != (err == nil) || back != c.freed {
			t.Errorf("%s: %v, %d bytes given back, want %v and %d", name, err, back, c.want, c.freed)
		}
		if ours := c.give != nil && c.want == nil; ours != (b != nil) || ours != (free != nil) ||
			ours && (len(b) != 2*page || b[5] != 0) {
			t.Errorf("%s: %d bytes", name, len(b))
		}
	}
	if b, _, err := pd.memory().Get("create QP", page); b != nil || err != nil {
		t.Errorf("of a PD: %d bytes, %v", len(b), err)
	}
	if _, err := pd.AllocParentDomain(ParentDomainConfig{Free: func([]byte) {}}); !errors.Is(err, ErrInvalid) {
		t.Errorf("Free without Alloc: %v", err)
	}
}

type listError []string

func (listError) Error() string { return "list" }

// TestAllocError checks that the error of Alloc can be of any type, even one whose values cannot be
// compared.
func TestAllocError(t *testing.T) {
	r := newRig(t)
	pd := good(r.c.AllocPD())(t)
	domain := good(pd.AllocParentDomain(ParentDomainConfig{
		Alloc: func(int, int) ([]byte, error) { return nil, listError{"no", "memory"} }, Free: func([]byte) {}}))(t)
	_, _, err := domain.memory()("create QP", unix.Getpagesize())
	var list listError
	if !errors.As(err, &list) || len(list) != 2 {
		t.Errorf("%v is not the error of Alloc", err)
	}
	for _, err := range []error{err, &Error{Kind: listError{"kind"}}} {
		if errors.Is(err, listError{"other"}) {
			t.Errorf("%v is another error", err)
		}
	}
}

// A ringContext allocates the rings of SRQs in the memory of the parent domain.
type ringContext struct{ *fakeContext }

func (c ringContext) CreateSRQ(cfg *driver.SRQConfig, create driver.Command) (providerSRQ, driver.Reply, error) {
	if _, _, err := cfg.Memory.Get("create SRQ", unix.Getpagesize()); err != nil {
		return nil, driver.Reply{}, err
	}
	return c.fakeContext.CreateSRQ(cfg, create)
}

// TestAllocCreatesObjects checks that Alloc may register its memory, even while CloseIdle or Close
// waits for the creation that calls Alloc. CloseIdle closes nothing then. After Close has begun,
// Alloc cannot create objects.
func TestAllocCreatesObjects(t *testing.T) {
	r := newRig(t)
	r.c.impl = ringContext{r.c.impl.(*fakeContext)}
	pd := good(r.c.AllocPD())(t)
	wait, ended := func() {}, make(chan struct{})
	domain := good(pd.AllocParentDomain(ParentDomainConfig{
		Alloc: func(n, _ int) ([]byte, error) {
			wait()
			mr, err := pd.Alloc(n, LocalWrite)
			if err != nil {
				return nil, err
			}
			return mr.Bytes(), nil
		},
		Free: func([]byte) {},
	}))(t)
	wait = func() {
		asked := make(chan struct{})
		first := sync.OnceFunc(func() { close(asked) })
		go func() {
			defer close(ended)
			if r.c.creating.stopWhile(func() bool { first(); return !r.c.inUse([]hasObject{pd, domain}) }) {
				t.Error("a Context with an MR is idle")
			}
		}()
		<-asked // pd.Alloc needs the lock that the goroutine holds until it waits
	}
	good(domain.CreateSRQ(SRQConfig{MaxWR: 4}))(t)
	<-ended
	closed := make(chan error, 1)
	wait = func() {
		go func() { closed <- r.c.Close() }()
		for r.c.creating.begin() {
			r.c.creating.end()
			runtime.Gosched()
		}
	}
	if _, err := domain.CreateSRQ(SRQConfig{MaxWR: 4}); !errors.Is(err, ErrClosed) {
		t.Errorf("CreateSRQ during Close: %v, want ErrClosed", err)
	}
	check(t, <-closed)
}

func domainErrors(t *testing.T) []errorCase {
	r, other := newRig(t), newRig(t)
	pd := good(r.c.AllocPD())(t)
	td := good(r.c.AllocTD())(t)
	good(pd.AllocParentDomain(ParentDomainConfig{TD: td}))(t)
	qp := good(pd.CreateQP(QPConfig{Type: RC, SendCQ: good(r.c.CreateCQ(CQConfig{Entries: 1, NoEvents: true}))(t)}))(t)
	stingy := good(good(r.c.AllocPD())(t).AllocParentDomain(ParentDomainConfig{
		Alloc: func(int, int) ([]byte, error) { return nil, errors.New("the arena is full") }, Free: func([]byte) {}}))(t)
	r.c.impl = plainContext{r.c.impl}
	return []errorCase{
		{"Alloc without Free", second(pd.AllocParentDomain(ParentDomainConfig{Alloc: stingy.allocRing})),
			[]error{ErrInvalid}},
		{"an Alloc that fails", third(stingy.memory()("create QP", 4096)), nil},
		{"a TD of another Context", second(pd.AllocParentDomain(ParentDomainConfig{TD: good(other.c.AllocTD())(t)})),
			[]error{ErrInvalid}},
		{"a CQ in a domain of another Context", second(other.c.CreateCQ(CQConfig{Entries: 1, PD: pd})), []error{ErrInvalid}},
		{"TD in use", td.Close(), []error{ErrBusy}},
		{"PD with a parent domain", pd.Close(), []error{ErrBusy}},
		{"a driver without null MRs", second(pd.AllocNullMR()), []error{ErrNotSupported}},
		{"a driver without options", second(qp.QueryECE()), []error{ErrNotSupported}},
		{"a driver without thread domains", second(r.c.AllocTD()), []error{ErrNotSupported}},
	}
}

// A plainContext has only the methods that every provider must have.
type plainContext struct{ providerContext }
