package uverbs

import (
	"errors"
	"strings"
	"testing"
	"testing/fstest"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/memlock"
)

// setMemlock replaces the process's limit on locked memory, and how much of it is used, until the
// test ends.
func setMemlock(t testing.TB, m memlock.State) {
	t.Helper()
	was := readMemlock
	readMemlock = func() (memlock.State, bool) { return m, true }
	t.Cleanup(func() { readMemlock = was })
}

// refuse makes commands fail with errno until the test ends.
func (r *rig) refuse(t testing.TB, errno unix.Errno, commands ...string) {
	t.Helper()
	r.k.Set(func() {
		r.k.Refuse = make(map[string]unix.Errno)
		for _, c := range commands {
			r.k.Refuse[c] = errno
		}
	})
	t.Cleanup(func() { r.k.Set(func() { r.k.Refuse = nil }) })
}

// queueMemlockErrors returns the errors of a registration in a user namespace, and of a CQ whose
// ring the driver pins.
func queueMemlockErrors(t *testing.T, m memlock.State) (inUserNS, queue error) {
	r := newRig(t)
	r.p.pins = 128 << 10
	pd := good(r.c.AllocPD())(t)
	r.refuse(t, unix.ENOMEM, "REG_MR", "CQ.CREATE")
	queue = second(r.c.CreateCQ(CQConfig{Entries: 1024, NoEvents: true}))
	m.InUserNS = true
	setMemlock(t, m)
	inUserNS = second(pd.Alloc(1<<20, LocalWrite))
	m.InUserNS = false
	setMemlock(t, m)
	return inUserNS, queue
}

// TestMemlockUnaligned checks that every page that the memory touches counts against the limit.
func TestMemlockUnaligned(t *testing.T) {
	const limit = 64 << 10
	setMemlock(t, memlock.State{Limit: limit})
	r := newRig(t)
	pd := good(r.c.AllocPD())(t)
	r.refuse(t, unix.ENOMEM, "REG_MR")
	whole := good(mapPages(2 * limit))(t)
	defer func() { check(t, unmapPages(whole)) }()
	if _, err := pd.RegMR(whole[100:][:limit], LocalWrite); !errors.Is(err, ErrMemlock) {
		t.Errorf("as many bytes as the limit, on one page more: %v, want ErrMemlock", err)
	}
	if _, err := pd.RegMR(whole[:limit], LocalWrite); errors.Is(err, ErrMemlock) {
		t.Errorf("as many pages as the limit: %v", err)
	}
	r.pageable()
	if _, err := pd.RegMR(whole[:2*limit], LocalWrite|OnDemand); errors.Is(err, ErrMemlock) {
		t.Errorf("on-demand memory: %v", err)
	}
}

// TestMemlockExempt checks that the error does not mention the limit if it does not apply to the
// process.
func TestMemlockExempt(t *testing.T) {
	for name, m := range map[string]memlock.State{
		"CAP_IPC_LOCK": {Limit: 4096, Exempt: true}, "unlimited": {Limit: unix.RLIM_INFINITY}} {
		setMemlock(t, m)
		r := newRig(t)
		pd := good(r.c.AllocPD())(t)
		r.refuse(t, unix.ENOMEM, "REG_MR")
		if _, err := pd.RegMR(make([]byte, 1<<20), LocalWrite); !errors.Is(err, unix.ENOMEM) || errors.Is(err, ErrMemlock) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// limited is a file system in which the second cgroup has reached a limit.
var limited = fstest.MapFS{
	"proc/self/cgroup":                   {Data: []byte("1:name=systemd:/x\n0::/jobs/j1\n")},
	"sys/fs/cgroup/jobs/j1/rdma.max":     {Data: []byte("mlx5_0 hca_handle=max hca_object=max\n")},
	"sys/fs/cgroup/jobs/j1/rdma.current": {Data: []byte("mlx5_0 hca_handle=9 hca_object=9\n")},
	"sys/fs/cgroup/jobs/rdma.max": {
		Data: []byte("mlx4_0 hca_handle=1 hca_object=1\nmlx5_0 hca_handle=3 hca_object=20\n")},
	"sys/fs/cgroup/jobs/rdma.current":       {Data: []byte("mlx5_0 hca_handle=2 hca_object=20\n")},
	"sys/fs/cgroup/jobs/elsewhere/rdma.max": {Data: []byte("mlx5_0 hca_handle=0 hca_object=0\n")},
}

func cgroupError() error {
	const op = "create QP"
	return &Error{Op: op, Object: "mlx5_0", Errno: unix.EAGAIN, Detail: explainCgroup(limited, "mlx5_0", op)}
}

// TestExplainCgroup checks that the text names the cgroup whose limit is reached, and its file.
func TestExplainCgroup(t *testing.T) {
	v1 := fstest.MapFS{
		"proc/self/cgroup":                    {Data: []byte("12:rdma:/job\n0::/\n")},
		"sys/fs/cgroup/rdma/job/rdma.max":     {Data: []byte("rxe0 hca_handle=1 hca_object=max\n")},
		"sys/fs/cgroup/rdma/job/rdma.current": {Data: []byte("rxe0 hca_handle=1 hca_object=5\n")},
	}
	for _, c := range []struct {
		files  fstest.MapFS
		device string
		want   string
	}{
		{limited, "mlx5_0", "allows 20 object(s)"},
		{limited, "mlx5_0", "hca_object in /sys/fs/cgroup/jobs/rdma.max"},
		{v1, "rxe0", "allows 1 open context(s)"},
		{v1, "rxe0", "hca_handle in /sys/fs/cgroup/rdma/job/rdma.max"},
		{limited, "rxe0", "hca_handle or hca_object of rxe0 in rdma.max of the cgroup in /proc/self/cgroup"},
		{fstest.MapFS{}, "rxe0", "hca_handle or hca_object of rxe0"},
		{fstest.MapFS{"proc/self/cgroup": {Data: []byte("0\n\n0::\n::/..\n")}}, "rxe0", "hca_handle or hca_object of rxe0"},
	} {
		if got := explainCgroup(c.files, c.device, "open"); !strings.Contains(got, c.want) {
			t.Errorf("%s: %q, want …%s…", c.device, got, c.want)
		}
	}
}

// TestCgroupObjects checks that the limit of contexts is not the cause when another object is created.
func TestCgroupObjects(t *testing.T) {
	both := fstest.MapFS{
		"proc/self/cgroup":           {Data: []byte("0::/\n")},
		"sys/fs/cgroup/rdma.max":     {Data: []byte("rxe0 hca_handle=1 hca_object=5\n")},
		"sys/fs/cgroup/rdma.current": {Data: []byte("rxe0 hca_handle=1 hca_object=5\n")},
	}
	for op, want := range map[string]string{"open": "allows 1 open context(s)", "allocate PD": "allows 5 object(s)"} {
		if got := explainCgroup(both, "rxe0", op); !strings.Contains(got, want) {
			t.Errorf("%s: %q, want …%s…", op, got, want)
		}
	}
}

// TestCgroupLimits checks that the error of every command that creates an object mentions the
// limits of the cgroup.
func TestCgroupLimits(t *testing.T) {
	bare := bareRig()
	bare.refuse(t, unix.EAGAIN, "DEVICE.GET_CONTEXT")
	_, open := bare.open(t)
	r := newRig(t)
	pd := good(r.c.AllocPD())(t)
	cq := good(r.c.CreateCQ(CQConfig{Entries: 1}))(t)
	r.refuse(t, unix.EAGAIN, "QP.CREATE", "CQ.CREATE", "REG_MR", "ALLOC_PD", "CREATE_AH", "SRQ.CREATE", "ALLOC_MW")
	for name, err := range map[string]error{
		"open": open,
		"QP":   second(pd.CreateQP(QPConfig{Type: RC, SendCQ: cq, MaxSendWR: 1})),
		"CQ":   second(r.c.CreateCQ(CQConfig{Entries: 1})),
		"MR":   second(pd.RegMR(make([]byte, 10), 0)),
		"PD":   second(r.c.AllocPD()),
		"AH":   second(pd.CreateAH(AHAttr{IsGlobal: true, Port: 1, SGIDIndex: 2})),
		"SRQ":  second(pd.CreateSRQ(SRQConfig{MaxWR: 1})),
		"MW":   second(pd.AllocMW(MWType2)),
	} {
		if !errors.Is(err, unix.EAGAIN) || !strings.Contains(err.Error(), "rdma.max") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := r.c.exhausted("query", "", "", unix.EAGAIN, unix.EAGAIN); err != nil {
		t.Errorf("a query is no create: %v", err)
	}
}

// TestMemlockOfQueues checks that rings which the driver pins count against the limit as well.
func TestMemlockOfQueues(t *testing.T) {
	r := newRig(t)
	pd := good(r.c.AllocPD())(t)
	cq := good(r.c.CreateCQ(CQConfig{Entries: 1, NoEvents: true}))(t)
	r.refuse(t, unix.ENOMEM, "CQ.CREATE", "QP.CREATE", "SRQ.CREATE", "RESIZE_CQ")
	create := func() map[string]error {
		return map[string]error{
			"CQ":     second(r.c.CreateCQ(CQConfig{Entries: 1024, NoEvents: true})),
			"QP":     second(pd.CreateQP(QPConfig{Type: RC, SendCQ: cq, MaxSendWR: 128})),
			"SRQ":    second(pd.CreateSRQ(SRQConfig{MaxWR: 128})),
			"resize": cq.Resize(1024),
		}
	}
	for _, c := range []struct {
		pins  int
		limit memlock.State
		want  bool
	}{
		{8192, memlock.State{Limit: 4096}, true},
		{8192, memlock.State{Limit: 1 << 20, Pinned: 1<<20 - 4096}, true},
		{8192, memlock.State{Limit: 8192}, false},
		{8192, memlock.State{Limit: 4096, Exempt: true}, false},
		{0, memlock.State{Limit: 4096}, false}, // a driver that pins no rings, such as rxe
	} {
		r.p.pins = c.pins
		setMemlock(t, c.limit)
		for name, err := range create() {
			if errors.Is(err, ErrMemlock) != c.want || !errors.Is(err, unix.ENOMEM) {
				t.Errorf("%s of %d bytes, %+v: %v; ErrMemlock: want %v", name, c.pins, c.limit, err, c.want)
			}
		}
	}
}
