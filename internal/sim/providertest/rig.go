package providertest

import (
	"runtime"
	"testing"
	"time"

	"github.com/goverbs/goverbs/internal/provider"
	"github.com/goverbs/goverbs/uverbs"
)

// A Rig is a QP that is connected to itself, one CQ for both of its queues, and memory with all
// access rights. The QP is of type RC, unless the function that runs the suite says otherwise.
type Rig struct {
	QP   provider.QP
	CQ   provider.CQ
	Cap  uverbs.QPCap
	QPN  uint32
	Mem  []byte // at least 64 KiB
	Addr uint64 // of Mem, for SGEs and for the peer
	LKey uint32
	RKey uint32

	// Work makes a simulated device execute what was posted. It is nil if the device
	// does that by itself.
	Work func()
	// Resize resizes CQ. It is nil if the provider does not support that.
	Resize func(entries int) error

	// NoAtomics and NoReset are true if the device has no atomics, and no way back from RESET. Then the suite tests that
	// they are refused.
	NoAtomics, NoReset bool

	// SRQ is the SRQ of the QP, or nil if the QP has a receive queue.
	SRQ provider.SRQ
	// SRQSize returns the attributes of SRQ.
	SRQSize func() uverbs.SRQAttr
	// ResizeSRQ resizes SRQ. It is nil if the device does not support that.
	ResizeSRQ func(maxWR int) error

	// AH, QKey and MTU are set if the QP is of type UD. AH is the address of the QP
	// itself, QKey its Q_Key, and MTU the length of the longest message.
	AH   *uverbs.AH
	QKey uint32
	MTU  int
	// UDAddr is the method of the uverbs.SendBatch, or nil if QP.UDAddr is to be called.
	UDAddr func(ah *uverbs.AH, qpn, qkey uint32)
	// NoGRH is true if datagrams to AH have no GRH, as within a subnet of InfiniBand.
	NoGRH bool
}

// The sizes of the queues that the suite needs.
const (
	MaxSendWR = 15
	MaxRecvWR = 15
	MaxSGE    = 3
	MaxInline = 48
	Entries   = 63
)

// Run runs the suite for RC. open returns a Rig whose queues have at least the sizes MaxSendWR to
// Entries. It is called once for each test, and cleans up with t.Cleanup.
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

// RunSRQ runs the suite for SRQs. open returns a Rig with an SRQ of MaxRecvWR receives of MaxSGE
// SGEs.
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

// RunIWARP runs the suite for iWARP, which has no immediate data, no atomics, no RESET, and READs of one SGE. open
// returns a Rig as for Run.
func RunIWARP(t *testing.T, open func(t *testing.T) *Rig) {
	run(t, open, []test{
		{"SendRecv", sendRecv},
		{"WriteAndRead", iwarpWriteAndRead},
		{"Inline", inline},
		{"Unsignaled", unsignaled},
		{"Batch", iwarpBatch},
		{"BatchDropped", batchDropped},
		{"BadRequest", badRequest},
		{"Refused", iwarpRefused},
		{"Full", full},
		{"Laps", laps},
		{"Failed", failed},
		{"NothingAllocated", nothingAllocated},
	})
}

// RunUC runs the suite for UC. open returns a Rig with a QP of type UC.
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

// RunUD runs the suite for UD. open returns a Rig with a QP of type UD and an AH.
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

// patience is the timeout of a completion.
const patience = 20 * time.Second

// poll waits for n completions and checks that there are no others at that moment.
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

// done waits for n completions and checks that they have succeeded.
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

// sge returns an SGE of n bytes at off.
func (r *Rig) sge(off, n int) uverbs.SGE {
	return uverbs.SGE{Addr: r.Addr + uint64(off), Length: uint32(n), LKey: r.LKey}
}

// write returns a signaled WRITE of n bytes from offset from to offset to.
func (r *Rig) write(id uint64, from, to, n int) uverbs.SendWR {
	return uverbs.SendWR{WRID: id, Opcode: uverbs.OpWrite, Flags: uverbs.Signaled,
		SGL: []uverbs.SGE{r.sge(from, n)}, RemoteAddr: r.Addr + uint64(to), RKey: r.RKey}
}

// want checks that Mem has data at off.
func (r *Rig) want(t *testing.T, off int, data string) {
	t.Helper()
	if got := string(r.Mem[off : off+len(data)]); got != data {
		t.Errorf("memory at %d holds %q, want %q", off, got, data)
	}
}
