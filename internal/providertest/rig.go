package providertest

import (
	"runtime"
	"testing"
	"time"

	"github.com/goverbs/goverbs/internal/provider"
	"github.com/goverbs/goverbs/uverbs"
)

// A Rig is a queue pair whose peer it is itself, one completion queue for both
// its queues, and memory that it may use in every way. The QP is RC, unless it
// is said otherwise.
type Rig struct {
	QP   provider.QP
	CQ   provider.CQ
	Cap  uverbs.QPCap
	QPN  uint32
	Mem  []byte // at least 64 KiB
	Addr uint64 // of Mem, for SGEs and for the peer
	LKey uint32
	RKey uint32

	// Work makes a device that does nothing by itself do what it was told.
	// Nil for one that does.
	Work func()
	// Resize resizes CQ.
	Resize func(entries int) error

	// SRQ is where the QP takes its receives from. Nil: it has a queue for them.
	SRQ provider.SRQ
	// SRQSize tells how large SRQ is.
	SRQSize func() uverbs.SRQAttr
	// ResizeSRQ resizes SRQ. Nil: the device does not.
	ResizeSRQ func(maxWR int) error

	// AH leads to the QP itself, which is UD. QKey is its key, MTU the longest
	// message.
	AH   *uverbs.AH
	QKey uint32
	MTU  int
	// UDAddr is UDAddr of the QP's batch, if it is one of uverbs. Nil: UDAddr of QP.
	UDAddr func(ah *uverbs.AH, qpn, qkey uint32)
	// NoGRH says that datagrams by AH have no GRH, as within a subnet of
	// InfiniBand.
	NoGRH bool
}

// The queues that the suite asks for.
const (
	MaxSendWR = 15
	MaxRecvWR = 15
	MaxSGE    = 3
	MaxInline = 48
	Entries   = 63
)

// Run runs the suite. open makes a Rig whose queues have at least the sizes
// above; it is called once for each test and cleans up by t.Cleanup.
func Run(t *testing.T, open func(t *testing.T) *Rig) {
	run(t, open, []test{
		{"SendRecv", sendRecv},
		{"Immediate", immediate},
		{"WriteAndRead", writeAndRead},
		{"Atomics", atomics},
		{"AtomicsBatch", atomicsBatch},
		{"AtomicsBad", atomicsBad},
		{"Inline", inline},
		{"Unsignaled", unsignaled},
		{"Batch", batch},
		{"BatchDropped", batchDropped},
		{"BadRequest", badRequest},
		{"Full", full},
		{"Laps", laps},
		{"Failed", failed},
		{"Reset", reset},
		{"Resize", resize},
		{"NothingAllocated", nothingAllocated},
	})
}

type test struct {
	name string
	run  func(t *testing.T, r *Rig)
}

func run(t *testing.T, open func(t *testing.T) *Rig, tests []test) {
	t.Helper()
	for _, c := range tests {
		t.Run(c.name, func(t *testing.T) { c.run(t, open(t)) })
	}
}

// RunSRQ runs the suite for shared receive queues: open makes Rigs with an SRQ of
// MaxRecvWR receives of MaxSGE SGEs.
func RunSRQ(t *testing.T, open func(t *testing.T) *Rig) {
	run(t, open, []test{
		{"SendRecv", sendRecv},
		{"Immediate", immediate},
		{"Batch", batch},
		{"Laps", laps},
		{"Failed", failed},
		{"NothingAllocated", nothingAllocated},
		{"Full", srqFull},
		{"BadReceive", srqBadReceive},
		{"Resize", srqResize},
	})
}

// RunUC runs the suite for UC: open makes Rigs whose QP is one.
func RunUC(t *testing.T, open func(t *testing.T) *Rig) {
	run(t, open, []test{
		{"SendRecv", sendRecv},
		{"Immediate", immediate},
		{"Write", ucWrite},
		{"Unsignaled", unsignaled},
		{"Batch", ucBatch},
		{"BatchDropped", batchDropped},
		{"BadRequest", badRequest},
		{"Refused", ucRefused},
		{"Full", full},
		{"Laps", laps},
		{"Lost", ucLost},
		{"Failed", failed},
		{"Reset", ucReset},
		{"Resize", resize},
		{"NothingAllocated", nothingAllocated},
	})
}

// RunUD runs the suite for UD: open makes Rigs with an AH.
func RunUD(t *testing.T, open func(t *testing.T) *Rig) {
	run(t, open, []test{
		{"SendRecv", udSendRecv},
		{"Batch", udBatch},
		{"BadRequest", udBadRequest},
		{"BatchDropped", udBatchDropped},
		{"Reset", udReset},
		{"NothingAllocated", udNothingAllocated},
	})
}

// patience is how long a completion may take.
const patience = 20 * time.Second

// poll waits for n completions and sees that there are no more at once.
func (r *Rig) poll(t *testing.T, n int) []uverbs.WC {
	t.Helper()
	wcs := make([]uverbs.WC, n+1)
	got := 0
	for deadline := time.Now().Add(patience); got < n; {
		k := r.take(t, wcs[got:])
		if got += k; k == 0 {
			if time.Now().After(deadline) {
				t.Fatalf("%d of %d completions after %v: %+v", got, n, patience, wcs[:got])
			}
			runtime.Gosched()
		}
	}
	if got > n {
		t.Fatalf("more than %d completions: %+v", n, wcs[:got])
	}
	return wcs[:n]
}

func (r *Rig) take(t *testing.T, wcs []uverbs.WC) int {
	t.Helper()
	if r.Work != nil {
		r.Work()
	}
	n, err := r.CQ.Poll(wcs)
	if err != nil {
		t.Fatalf("Poll: %v", err)
	}
	return n
}

// done waits for n completions, all of which must be good.
func (r *Rig) done(t *testing.T, n int) []uverbs.WC {
	t.Helper()
	wcs := r.poll(t, n)
	for i := range wcs {
		if err := wcs[i].Err(); err != nil {
			t.Fatalf("request %d: %v", wcs[i].WRID, err)
		}
		if wcs[i].QPNum != r.QPN {
			t.Fatalf("request %d completes on QP %d, want %d", wcs[i].WRID, wcs[i].QPNum, r.QPN)
		}
	}
	return wcs
}

func (r *Rig) send(t *testing.T, wrs ...uverbs.SendWR) {
	t.Helper()
	if n, err := r.QP.PostSend(wrs); n != len(wrs) || err != nil {
		t.Fatalf("PostSend: %d of %d: %v", n, len(wrs), err)
	}
}

func (r *Rig) recv(t *testing.T, wrs ...uverbs.RecvWR) {
	t.Helper()
	if n, err := r.postRecv(wrs); n != len(wrs) || err != nil {
		t.Fatalf("PostRecv: %d of %d: %v", n, len(wrs), err)
	}
}

func (r *Rig) postRecv(wrs []uverbs.RecvWR) (int, error) {
	if r.SRQ != nil {
		return r.SRQ.PostRecv(wrs)
	}
	return r.QP.PostRecv(wrs)
}

func (r *Rig) udAddr(ah *uverbs.AH, qpn, qkey uint32) {
	if r.UDAddr != nil {
		r.UDAddr(ah, qpn, qkey)
		return
	}
	r.QP.UDAddr(provider.AHOf(ah), qpn, qkey)
}

// sge names n bytes at off.
func (r *Rig) sge(off, n int) uverbs.SGE {
	return uverbs.SGE{Addr: r.Addr + uint64(off), Length: uint32(n), LKey: r.LKey}
}

// write is a signaled WRITE of n bytes from offset from to offset to.
func (r *Rig) write(id uint64, from, to, n int) uverbs.SendWR {
	return uverbs.SendWR{WRID: id, Opcode: uverbs.OpWrite, Flags: uverbs.Signaled,
		SGL: []uverbs.SGE{r.sge(from, n)}, RemoteAddr: r.Addr + uint64(to), RKey: r.RKey}
}

// want fails unless Mem holds data at off.
func (r *Rig) want(t *testing.T, off int, data string) {
	t.Helper()
	if got := string(r.Mem[off : off+len(data)]); got != data {
		t.Errorf("memory at %d holds %q, want %q", off, got, data)
	}
}
