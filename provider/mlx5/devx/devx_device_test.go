//go:build device

package devx_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"net"
	"os"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/sim/connectx/prm"
	"github.com/goverbs/goverbs/internal/sim/features"
	"github.com/goverbs/goverbs/provider/mlx5/devx"
	_ "github.com/goverbs/goverbs/provider/rxe" // whose devices have no DevX
	"github.com/goverbs/goverbs/uverbs"
)

// open opens the device. It skips the test if the device has no DevX.
func open(t *testing.T) *uverbs.Context {
	t.Helper()
	ctx, err := uverbs.Open(os.Getenv("GOVERBS_DEVICE"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := ctx.Close(); err != nil {
			t.Error(err)
		}
	})
	if _, err := devx.QueryEQN(ctx, 0); errors.Is(err, uverbs.ErrNotSupported) {
		features.Missing(t, features.DevX, err)
	}
	return ctx
}

func deadline(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// input returns the input of a command.
func input(opcode uint16, l *prm.Layout, set func(in []byte)) []byte {
	in := make([]byte, l.Size)
	prm.CmdOpcode.Set(in, uint64(opcode))
	if set != nil {
		set(in)
	}
	return in
}

func set(f prm.Field, v uint64) func([]byte) { return func(in []byte) { f.Set(in, v) } }

// create creates an object and returns its number.
func create(t *testing.T, ctx *uverbs.Context, opcode uint16, l *prm.Layout, number prm.Field,
	set func(in []byte)) (*devx.Obj, uint64) {
	t.Helper()
	out := make([]byte, 16)
	o, err := devx.Create(ctx, input(opcode, l, set), out)
	if err != nil {
		t.Fatal(err)
	}
	return o, number.Get(out)
}

// TestDeviceCommand executes queries, and commands that the kernel or the device refuses.
func TestDeviceCommand(t *testing.T) {
	ctx := open(t)
	out := make([]byte, prm.QueryHCACapOut.Size)
	in := input(0x100, prm.QueryHCACapIn, set(prm.CmdOpMod, 1)) // general capabilities, current values
	if err := devx.Command(ctx, in, out); err != nil {
		t.Fatal(err)
	}
	if n := prm.HCACapLogMaxUctx.Get(prm.QueryHCACapOutCapability.Bytes(out)); n == 0 {
		t.Error("the device has no user contexts")
	}
	if eqn, err := devx.QueryEQN(ctx, 0); err != nil || eqn == 0 {
		t.Errorf("event queue %d: %v", eqn, err)
	}
	if _, err := devx.QueryEQN(ctx, ctx.CompVectors()); !errors.Is(err, uverbs.ErrInvalid) {
		t.Errorf("the event queue of no vector: %v", err)
	}
	if err := devx.Command(ctx, in[:8], out); !errors.Is(err, uverbs.ErrInvalid) {
		t.Errorf("a short command: %v", err)
	}
	if err := devx.Command(ctx, input(0x800, prm.AllocPDIn, nil), out); !errors.Is(err, uverbs.ErrInvalid) {
		t.Errorf("a command that creates an object: %v", err)
	}
}

// TestDeviceRefused checks the error of a command that the device refuses.
func TestDeviceRefused(t *testing.T) {
	ctx := open(t)
	_, err := devx.Create(ctx, input(0x500, prm.CreateQPIn, set(prm.CreateQPInWQUMemID, 0xffffff)), make([]byte, 16))
	if err == nil {
		t.Fatal("a QP in a umem that does not exist was created")
	}
	var said *devx.StatusError
	switch {
	case errors.As(err, &said) && said.Opcode == 0x500 && said.Syndrome != 0:
	case errors.Is(err, unix.EINVAL) && kernelBefore6():
	default:
		t.Errorf("a QP in a umem that does not exist: %v", err)
	}
}

func kernelBefore6() bool {
	var u unix.Utsname
	return unix.Uname(&u) == nil && u.Release[0] < '6' && u.Release[1] == '.'
}

// A rig is a queue pair with all that it needs, created by DevX.
type rig struct {
	t                    *testing.T
	ctx                  *uverbs.Context
	pd, mkey, cqn, qpn   uint64
	cq, qp               *devx.Obj
	uar                  *devx.UAR
	rings, records, data *devx.Umem
	posted, polled       uint32
	received             uint32 // receives that were posted
	sends                int    // where the send queue begins in rings
}

// Offsets in the umems.
const (
	sqOffset = 4096
	qpRecord = 64
	cqSize   = 16
	half     = 2048 // of the data
)

// newRig returns a rig that is connected to itself, without a receive queue.
func newRig(t *testing.T) *rig {
	r := createRig(t, sqOffset)
	r.connect(r.qpn)
	return r
}

// createRig returns a rig that is not connected. The receive queue is between qpOffset and the send queue, which begins
// at sends.
func createRig(t *testing.T, sends int) *rig {
	r := &rig{t: t, ctx: open(t), sends: sends}
	umem := func(n int) *devx.Umem {
		u, err := devx.AllocUmem(r.ctx, n, uverbs.LocalWrite)
		if err != nil {
			t.Fatal(err)
		}
		return u
	}
	r.rings, r.records, r.data = umem(2*4096), umem(4096), umem(4096)
	var err error
	if r.uar, err = devx.AllocUAR(r.ctx, devx.NonCached); err != nil {
		t.Fatal(err)
	}
	_, r.pd = create(t, r.ctx, 0x800, prm.AllocPDIn, prm.AllocPDOutPD, nil)
	_, index := create(t, r.ctx, 0x200, prm.CreateMKeyIn, prm.CreateMKeyOutMKeyIndex, r.key)
	r.mkey = index << 8
	r.createCQ()
	r.qp, r.qpn = create(t, r.ctx, 0x500, prm.CreateQPIn, prm.CreateQPOutQPN, r.queues)
	return r
}

func (r *rig) key(in []byte) {
	c := prm.CreateMKeyInMKC.Bytes(in)
	for _, f := range []prm.Field{prm.MKCLR, prm.MKCLW, prm.MKCRR, prm.MKCRW} {
		f.Set(c, 1)
	}
	prm.MKCAccessMode10.Set(c, 1) // pages
	prm.MKCQPN.Set(c, 0xffffff)
	prm.MKCPD.Set(c, r.pd)
	prm.MKCLen.Set(c, 4096)
	prm.MKCLogPageSize.Set(c, 12)
	prm.MKCTranslationsOctwordSize.Set(c, 1)
	prm.CreateMKeyInTranslationsOctwordActualSize.Set(in, 0)
	prm.CreateMKeyInMKeyUMemID.Set(in, uint64(r.data.ID()))
}

func (r *rig) createCQ() {
	eqn, err := devx.QueryEQN(r.ctx, 0)
	if err != nil {
		r.t.Fatal(err)
	}
	for i := range cqSize {
		r.rings.Bytes()[64*i+63] = 0xf1 // invalid, and the device's
	}
	r.cq, r.cqn = create(r.t, r.ctx, 0x400, prm.CreateCQIn, prm.CreateCQOutCQN, func(in []byte) {
		c := prm.CreateCQInCQC.Bytes(in)
		prm.CQCLogCQSize.Set(c, 4)
		prm.CQCUARPage.Set(c, uint64(r.uar.Page()))
		prm.CQCCEQN.Set(c, uint64(eqn))
		prm.CQCDBRUMemID.Set(c, uint64(r.records.ID()))
		prm.CreateCQInCQUMemID.Set(in, uint64(r.rings.ID()))
	})
}

func (r *rig) queues(in []byte) {
	c := prm.CreateQPInQPC.Bytes(in)
	prm.QPCPMState.Set(c, 3)
	prm.QPCPD.Set(c, r.pd)
	prm.QPCUARPage.Set(c, uint64(r.uar.Page()))
	prm.QPCCQNSnd.Set(c, r.cqn)
	prm.QPCCQNRcv.Set(c, r.cqn)
	prm.QPCLogSQSize.Set(c, 4)
	if r.sends == sqOffset {
		prm.QPCRQType.Set(c, 3) // no receive queue
	} else {
		prm.QPCLogRQSize.Set(c, 4) // of 16 bytes each
	}
	prm.QPCDBRAddr.Set(c, qpRecord)
	prm.QPCDBRUMemID.Set(c, uint64(r.records.ID()))
	prm.CreateQPInWQUMemID.Set(in, uint64(r.rings.ID()))
	prm.CreateQPInWQUMemOffset.Set(in, sqOffset)
}

// connect moves the queue pair to RTS, connected to another of the same port.
func (r *rig) connect(remote uint64) {
	modify := func(opcode uint16, fill func(c, path []byte)) {
		r.t.Helper()
		in := input(opcode, prm.ModifyQPIn, func(in []byte) {
			prm.ModifyQPInQPN.Set(in, r.qpn)
			c := prm.ModifyQPInQPC.Bytes(in)
			prm.QPCPMState.Set(c, 3)
			prm.ADSVHCAPortNum.Set(prm.QPCPrimary.Bytes(c), 1)
			fill(c, prm.QPCPrimary.Bytes(c))
		})
		if err := r.qp.Modify(in, make([]byte, 16)); err != nil {
			r.t.Fatal(err)
		}
	}
	modify(0x502, func(c, _ []byte) { prm.QPCRWE.Set(c, 1) })
	modify(0x503, func(c, path []byte) {
		prm.QPCMTU.Set(c, 3)
		prm.QPCLogMsgMax.Set(c, 20)
		prm.QPCRemoteQPN.Set(c, remote)
		prm.QPCMinRNRNak.Set(c, 12)
		r.address(path)
	})
	modify(0x504, func(c, path []byte) {
		prm.QPCRetryCount.Set(c, 7)
		prm.QPCRNRRetry.Set(c, 7)
		prm.ADSAckTimeout.Set(path, 14)
	})
}

// address sets the address of the device's own port.
func (r *rig) address(path []byte) {
	port, err := r.ctx.QueryPort(1)
	if err != nil {
		r.t.Fatal(err)
	}
	if prm.ADSRLID.Set(path, uint64(port.LID)); port.LID != 0 {
		return
	}
	gid, err := r.ctx.QueryGID(1, 0)
	if err != nil {
		r.t.Fatal(err)
	}
	dev, err := net.InterfaceByIndex(gid.IfIndex)
	if err != nil {
		r.t.Fatal(err)
	}
	copy(prm.ADSRGID.Bytes(path), gid.GID[:])
	copy(prm.ADSRMAC.Bytes(path), dev.HardwareAddr)
	prm.ADSHopLimit.Set(path, 64)
}

// post posts a WRITE of n bytes from the first half of the data to the second.
func (r *rig) post(n int) {
	r.t.Helper()
	be := binary.BigEndian
	remote := make([]byte, 16)
	be.PutUint64(remote, half)
	be.PutUint32(remote[8:], uint32(r.mkey))
	r.request(0x08, 0, append(remote, r.segment(0, n)...))
}

// segment returns a data segment of n bytes of the data at off.
func (r *rig) segment(off uint64, n int) []byte {
	s := make([]byte, 16)
	binary.BigEndian.PutUint32(s, uint32(n))
	binary.BigEndian.PutUint32(s[4:], uint32(r.mkey))
	binary.BigEndian.PutUint64(s[8:], off)
	return s
}

// request posts a request that consists of a control segment and others.
func (r *rig) request(opcode, imm uint32, others []byte) {
	r.t.Helper()
	wqe := r.rings.Bytes()[r.sends+64*int(r.posted%16):][:64]
	be := binary.BigEndian
	be.PutUint32(wqe, r.posted<<8|opcode)
	be.PutUint32(wqe[4:], uint32(r.qpn)<<8|uint32(1+len(others)/16))
	be.PutUint32(wqe[8:], 8) // a completion
	be.PutUint32(wqe[12:], imm)
	copy(wqe[16:], others)
	r.posted++
	store(r.records.Bytes()[qpRecord+4:], r.posted&0xffff)
	if err := r.uar.Ring(devx.SendRegister, be.Uint64(wqe)); err != nil {
		r.t.Fatal(err)
	}
}

// receive posts a receive of n bytes for the second half of the data.
func (r *rig) receive(n int) {
	copy(r.rings.Bytes()[sqOffset+16*(r.received%16):], r.segment(half, n))
	r.received++
	store(r.records.Bytes()[qpRecord:], r.received&0xffff)
}

// poll waits for a completion, which must be of a request.
func (r *rig) poll() {
	r.t.Helper()
	r.completion(0)
}

// completion waits for a completion, which must have the opcode, and returns it.
func (r *rig) completion(opcode uint32) []byte {
	r.t.Helper()
	at := 64 * (r.polled % cqSize)
	for ctx := deadline(r.t); ; {
		last := load(r.rings.Bytes()[at+60:])
		if op := last >> 4 & 0xf; op != 0xf && last&1 == r.polled/cqSize&1 {
			if op != opcode {
				r.t.Fatalf("completion %d is % x", r.polled, r.rings.Bytes()[at:at+64])
			}
			break
		}
		if ctx.Err() != nil {
			r.t.Fatalf("no completion %d: % x", r.polled, r.rings.Bytes()[at:at+64])
		}
		runtime.Gosched()
	}
	cqe := bytes.Clone(r.rings.Bytes()[at : at+64])
	r.polled++
	store(r.records.Bytes(), r.polled)
	return cqe
}

// TestDeviceTraffic creates a queue pair with its rings in umems by DevX, and writes with it.
func TestDeviceTraffic(t *testing.T) {
	r := newRig(t)
	data := r.data.Bytes()
	for i := range 40 { // the rings wrap
		for b := range 100 {
			data[b] = byte(i + b)
		}
		r.post(100)
		r.poll()
		if !bytes.Equal(data[half:half+100], data[:100]) {
			t.Fatalf("after request %d, the data are % x", i, data[half:half+100])
		}
	}
	out := make([]byte, prm.QueryQPOut.Size)
	if err := r.qp.Query(input(0x50b, prm.QueryQPIn, set(prm.QueryQPInQPN, r.qpn)), out); err != nil {
		t.Fatal(err)
	}
	if c := prm.QueryQPOutQPC.Bytes(out); prm.QPCState.Get(c) != 3 || prm.QPCRemoteQPN.Get(c) != r.qpn {
		t.Errorf("the state is %d, the remote QP %#x", prm.QPCState.Get(c), prm.QPCRemoteQPN.Get(c))
	}
	if err := r.rings.Close(); !errors.Is(err, uverbs.ErrBusy) && !errors.Is(err, unix.EREMOTEIO) {
		t.Errorf("Close of a umem that a QP uses: %v", err)
	}
	for _, o := range []interface{ Close() error }{r.qp, r.cq, r.rings, r.records} {
		if err := errors.Join(o.Close(), o.Close()); err != nil {
			t.Error(err)
		}
	}
	err := r.qp.Query(input(0x50b, prm.QueryQPIn, set(prm.QueryQPInQPN, r.qpn)), out)
	if !errors.Is(err, uverbs.ErrClosed) {
		t.Errorf("a query of a closed QP: %v", err)
	}
}

// TestDeviceEvents waits for the event of a completion queue.
func TestDeviceEvents(t *testing.T) {
	r := newRig(t)
	events, err := devx.CreateEventChannel(r.ctx)
	if err != nil {
		t.Fatal(err)
	}
	const cookie = 0x1234567890
	if err := events.Subscribe(r.cq, cookie, devx.Completion, devx.CQError); err != nil {
		t.Fatal(err)
	}
	if err := events.Subscribe(r.cq, 0); !errors.Is(err, uverbs.ErrInvalid) {
		t.Errorf("a subscription to nothing: %v", err)
	}
	if err := events.Subscribe(nil, 0, devx.CQError); !errors.Is(err, uverbs.ErrInvalid) {
		t.Errorf("a subscription to an event that the device itself does not have: %v", err)
	}
	for i := range uint32(3) {
		arm := i<<28 | r.polled
		store(r.records.Bytes()[4:], arm)
		if err := r.uar.Ring(devx.ArmRegister, uint64(arm)<<32|r.cqn); err != nil {
			t.Fatal(err)
		}
		r.post(1)
		e, err := events.Next(deadline(t))
		if err != nil {
			t.Fatal(err)
		}
		if e.Cookie != cookie || len(e.Data) != 64 {
			t.Errorf("an event with cookie %#x and %d bytes", e.Cookie, len(e.Data))
		}
		r.poll()
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := events.Next(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("Next with a ctx that is done: %v", err)
	}
	ended := make(chan error, 1)
	go func() {
		_, err := events.Next(t.Context())
		ended <- err
	}()
	if err := events.Close(); err != nil {
		t.Error(err)
	}
	if err := <-ended; !errors.Is(err, uverbs.ErrClosed) {
		t.Errorf("Next during Close: %v", err)
	}
}

// TestDeviceAsync queries an object asynchronously.
func TestDeviceAsync(t *testing.T) {
	r := newRig(t)
	replies, err := devx.CreateReplies(r.ctx)
	if err != nil {
		t.Fatal(err)
	}
	in := input(0x402, prm.QueryCQIn, set(prm.QueryCQInCQN, r.cqn))
	if err := r.cq.QueryAsync(in, 4, 1, replies); !errors.Is(err, uverbs.ErrInvalid) {
		t.Errorf("a reply of 4 bytes: %v", err)
	}
	for i := range uint64(3) {
		if err := r.cq.QueryAsync(in, prm.QueryCQOut.Size, 7+i, replies); err != nil {
			t.Fatal(err)
		}
	}
	seen := map[uint64]bool{}
	for range 3 {
		wrID, reply, err := replies.Next(deadline(t))
		if err != nil {
			t.Fatal(err)
		}
		if seen[wrID] = true; len(reply) != prm.QueryCQOut.Size ||
			prm.CQCUARPage.Get(prm.QueryCQOutCQC.Bytes(reply)) != uint64(r.uar.Page()) {
			t.Errorf("reply %d has %d bytes: % x", wrID, len(reply), reply[:min(len(reply), 64)])
		}
	}
	if len(seen) != 3 || !seen[7] || !seen[8] || !seen[9] {
		t.Errorf("the numbers of the replies are %v", seen)
	}
	if err := replies.Close(); err != nil {
		t.Error(err)
	}
	if err := r.cq.QueryAsync(in, prm.QueryCQOut.Size, 7, replies); !errors.Is(err, uverbs.ErrClosed) {
		t.Errorf("a query whose queue of replies is closed: %v", err)
	}
}

// TestDeviceUAR checks the errors of doorbells.
func TestDeviceUAR(t *testing.T) {
	ctx := open(t)
	u, err := devx.AllocUAR(ctx, devx.NonCached)
	if err != nil {
		t.Fatal(err)
	}
	for _, off := range []int{-8, 4, 4096} {
		if err := u.Ring(off, 0); !errors.Is(err, uverbs.ErrInvalid) {
			t.Errorf("a doorbell at %d: %v", off, err)
		}
	}
	if err := u.Close(); err != nil {
		t.Error(err)
	}
	if err := u.Ring(devx.SendRegister, 0); !errors.Is(err, uverbs.ErrClosed) {
		t.Errorf("a doorbell of a closed page: %v", err)
	}
	if _, err := devx.AllocUmem(ctx, 0, 0); !errors.Is(err, uverbs.ErrInvalid) {
		t.Errorf("a umem of 0 bytes: %v", err)
	}
}
