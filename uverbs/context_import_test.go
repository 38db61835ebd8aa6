package uverbs

import (
	"errors"
	"testing"

	"github.com/goverbs/goverbs/internal/sim/ioctltest"
	"github.com/goverbs/goverbs/internal/uapi"
	"golang.org/x/sys/unix"
)

// imported returns a second Context on the kernel's context of r.
func (r *rig) imported(t testing.TB) *Context {
	t.Helper()
	c := good(importContext(r.k.Open(t, "uverbs0"), Device{Name: "fake0", Ports: len(r.k.Ports), DriverID: fakeDriver},
		r.p))(t)
	t.Cleanup(func() { check(t, c.Close()) })
	return c
}

// TestImport checks that an imported object refers to the creator's object, and that its Close does
// not destroy that.
func TestImport(t *testing.T) {
	r := newRig(t)
	b := r.bundle(t, false)
	c := r.imported(t)
	if c.CompVectors() != r.c.CompVectors() || c.coreSupport != r.c.coreSupport {
		t.Error("the Context does not know what the kernel has told")
	}
	pd := good(c.ImportPD(b.pd.Handle()))(t)
	mr := good(pd.ImportMR(b.mr.Handle()))(t)
	if mr.Addr() != b.mr.Addr() || mr.Len() != b.mr.Len() || mr.LKey() != b.mr.LKey() || mr.RKey() != b.mr.RKey() ||
		mr.Bytes() != nil {
		t.Errorf("the MR is %+v, not %+v", mr.view.Load(), b.mr.view.Load())
	}
	if s := mr.SGE(10, 20); s != b.mr.SGE(10, 20) || mr.SGE(4090, 20).Length != badLength {
		t.Errorf("a range of it is %+v", s)
	}
	if err := mr.Rereg(ReregAccess, nil, nil, 0); !errors.Is(err, ErrInvalid) {
		t.Errorf("Rereg: %v", err)
	}
	dm := good(r.c.AllocDM(DMConfig{Size: 68}))(t)
	shared := good(c.ImportDM(dm.Handle()))(t)
	if shared.Size() != 68 || shared.Context() != c {
		t.Errorf("the device memory has %d bytes", shared.Size())
	}
	// Events of the objects that c creates are delivered to its own event file.
	events := map[string]bool{}
	files := map[string]uint16{"CQ.CREATE": uapi.UVERBS_ATTR_CREATE_CQ_EVENT_FD,
		"QP.CREATE": uapi.UVERBS_ATTR_CREATE_QP_EVENT_FD, "SRQ.CREATE": uapi.UVERBS_ATTR_CREATE_SRQ_EVENT_FD}
	r.k.Before = func(m *ioctltest.Msg) {
		if id, ok := files[m.Name]; ok {
			fd, named := m.Ref(id)
			events[m.Name] = named && int(fd) == c.events.fd
		}
	}
	cq := good(c.CreateCQ(CQConfig{Entries: 16}))(t)
	qp := good(pd.CreateQP(QPConfig{Type: RC, SendCQ: cq, MaxSendWR: 4, MaxRecvWR: 4}))(t)
	srq := good(pd.CreateSRQ(SRQConfig{MaxWR: 4}))(t)
	for name := range files {
		if !events[name] {
			t.Errorf("%s does not name the Context's event file", name)
		}
	}
	r.k.Before = nil
	if r.c.lookup(qp.id) != nil || r.c.lookup(cq.id) != nil || r.c.lookup(srq.id) != nil {
		t.Error("numbers of the imported Context mean something to the maker")
	}
	check(t, qp.Connect(good(qp.Endpoint())(t)))
	good(qp.PostSend(SendWR{Opcode: OpWrite, SGL: []SGE{mr.SGE(0, 8)}}))(t)
	for _, close := range []func() error{shared.Close, shared.Close, mr.Close, mr.Close, qp.Close, srq.Close,
		cq.Close, pd.Close, pd.Close} {
		check(t, close())
	}
	good(good(c.ImportPD(b.pd.Handle()))(t).ImportMR(b.mr.Handle()))(t)
	check(t, c.Close())
	good(b.qp.PostSend(SendWR{Opcode: OpWrite, SGL: []SGE{b.mr.SGE(0, 8)}}))(t)
	if n := r.k.Count("MR.DESTROY") + r.k.Count("PD.DESTROY") + r.k.Count("DM.FREE"); n != 0 {
		t.Errorf("%d objects of the maker's were destroyed", n)
	}
}

// TestExportFD checks that a descriptor from ExportFD outlives the Context and belongs to the
// caller.
func TestExportFD(t *testing.T) {
	r := newRig(t)
	fd := good(r.c.ExportFD())(t)
	if flags := good(unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0))(t); flags&unix.FD_CLOEXEC == 0 {
		t.Error("the descriptor is inherited by children")
	}
	check(t, unix.Close(fd))
	check(t, r.c.Close())
	if _, err := r.c.ExportFD(); !errors.Is(err, ErrClosed) {
		t.Errorf("ExportFD after Close: %v", err)
	}
}

// exportWithoutDescriptors calls ExportFD while the process may have no descriptor but 0, which is
// in use.
func exportWithoutDescriptors(t *testing.T, c *Context) error {
	var old unix.Rlimit
	check(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &old))
	check(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 1, Max: old.Max}))
	fd, err := c.ExportFD()
	check(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &old))
	if err == nil {
		check(t, unix.Close(fd))
	}
	return err
}

func importErrors(t *testing.T) []errorCase {
	r := newRig(t)
	c := r.imported(t)
	pd := good(c.ImportPD(0))(t)
	cases := []errorCase{
		{"no descriptor", second(ImportDevice(-1)), []error{ErrInvalid}},
		{"export without descriptors", exportWithoutDescriptors(t, c), []error{unix.EMFILE}},
		{"no such PD", second(c.ImportPD(99)), []error{ErrInvalid, unix.ENOENT}},
		{"no such MR", second(pd.ImportMR(99)), []error{ErrInvalid, unix.ENOENT}},
		{"no such device memory", second(c.ImportDM(99)), []error{ErrInvalid, unix.ENOENT}},
	}
	other := bareRig()
	fails := func(p provider) error {
		return second(importContext(other.k.Open(t, "uverbs0"), Device{Name: "fake0", DriverID: fakeDriver}, p))
	}
	cases = append(cases, errorCase{"a driver that does not share contexts", fails(struct{ provider }{r.p}),
		[]error{ErrNotSupported}})
	other.k.Refuse = map[string]unix.Errno{"DEVICE.QUERY_CONTEXT": unix.EOPNOTSUPP}
	cases = append(cases, errorCase{"a kernel that does not", fails(other.p), []error{ErrNotSupported}})
	c.impl = plainContext{c.impl}
	return append(cases,
		errorCase{"a driver that does not share PDs", second(c.ImportPD(0)), []error{ErrNotSupported}},
		errorCase{"a driver without device memory", second(c.ImportDM(0)), []error{ErrNotSupported}})
}
