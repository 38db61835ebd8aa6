package devicetest

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/goverbs/goverbs/uverbs"
)

var sizes = []int{0, 1, 64, 1023, 4096, bufSize}

func TestDeviceRCSend(t *testing.T) {
	l := newLoop(t, nil)
	for _, n := range sizes {
		l.a.fill(byte(n))
		clear(l.b.mr.Bytes())
		receive(t, l.b.qp, uverbs.RecvWR{WRID: 1, SGL: []uverbs.SGE{l.b.mr.SGE(0, bufSize)}})
		post(t, l.a.qp, uverbs.SendWR{WRID: 2, Opcode: uverbs.OpSend, Flags: uverbs.Signaled,
			SGL: []uverbs.SGE{l.a.mr.SGE(0, n)}})
		l.success(t, l.a, 2, uverbs.WCSend)
		if wc := l.success(t, l.b, 1, uverbs.WCRecv); int(wc.ByteLen) != n || wc.Flags&uverbs.WCWithImm != 0 {
			t.Fatalf("size %d: received %+v", n, wc)
		}
		same(t, l.b.mr.Bytes()[:n], l.a.mr.Bytes()[:n])
	}
}

func TestDeviceRCSendImmediate(t *testing.T) {
	l := newLoop(t, nil)
	receive(t, l.b.qp, uverbs.RecvWR{WRID: 1, SGL: []uverbs.SGE{l.b.mr.SGE(0, 64)}})
	post(t, l.a.qp, uverbs.SendWR{WRID: 2, Opcode: uverbs.OpSendImm, Flags: uverbs.Signaled | uverbs.Solicited,
		Inline: []byte("with immediate"), Imm: 0x01020304})
	l.success(t, l.a, 2, uverbs.WCSend)
	if wc := l.success(t, l.b, 1, uverbs.WCRecv); wc.Imm != 0x01020304 || wc.Flags&uverbs.WCWithImm == 0 {
		t.Fatalf("received %+v", wc)
	}
	same(t, l.b.mr.Bytes()[:14], []byte("with immediate"))
}

func TestDeviceRCWrite(t *testing.T) {
	l := newLoop(t, nil)
	for _, n := range sizes {
		l.a.fill(byte(n))
		clear(l.b.mr.Bytes())
		post(t, l.a.qp, uverbs.SendWR{WRID: 3, Opcode: uverbs.OpWrite, Flags: uverbs.Signaled,
			SGL: []uverbs.SGE{l.a.mr.SGE(0, n)}, RemoteAddr: l.b.mr.Addr(), RKey: l.b.mr.RKey()})
		l.success(t, l.a, 3, uverbs.WCWrite)
		same(t, l.b.mr.Bytes()[:n], l.a.mr.Bytes()[:n])
	}
}

func TestDeviceRCWriteImmediate(t *testing.T) {
	l := newLoop(t, nil)
	l.a.fill(9)
	receive(t, l.b.qp, uverbs.RecvWR{WRID: 1})
	post(t, l.a.qp, uverbs.SendWR{WRID: 4, Opcode: uverbs.OpWriteImm, Flags: uverbs.Signaled,
		SGL: []uverbs.SGE{l.a.mr.SGE(10, 3000)}, RemoteAddr: l.b.mr.Addr() + 77, RKey: l.b.mr.RKey(), Imm: 0xfffefdfc})
	l.success(t, l.a, 4, uverbs.WCWrite)
	if wc := l.success(t, l.b, 1, uverbs.WCRecvRDMAImm); wc.Imm != 0xfffefdfc || wc.ByteLen != 3000 {
		t.Fatalf("received %+v", wc)
	}
	same(t, l.b.mr.Bytes()[77:3077], l.a.mr.Bytes()[10:3010])
}

func TestDeviceRCRead(t *testing.T) {
	l := newLoop(t, nil)
	for _, n := range sizes {
		l.b.fill(byte(n))
		clear(l.a.mr.Bytes())
		post(t, l.a.qp, uverbs.SendWR{WRID: 5, Opcode: uverbs.OpRead, Flags: uverbs.Signaled,
			SGL: []uverbs.SGE{l.a.mr.SGE(0, n)}, RemoteAddr: l.b.mr.Addr(), RKey: l.b.mr.RKey()})
		l.success(t, l.a, 5, uverbs.WCRead)
		same(t, l.a.mr.Bytes()[:n], l.b.mr.Bytes()[:n])
	}
}

// TestDeviceRCFence sends the data that the READ before it fetches, and checks that the fence makes
// the send wait.
func TestDeviceRCFence(t *testing.T) {
	l := newLoop(t, nil)
	for round := range 20 {
		l.b.fill(byte(round))
		clear(l.a.mr.Bytes())
		receive(t, l.b.qp, uverbs.RecvWR{WRID: 1, SGL: []uverbs.SGE{l.b.mr.SGE(32<<10, 4096)}})
		post(t, l.a.qp,
			uverbs.SendWR{Opcode: uverbs.OpRead, SGL: []uverbs.SGE{l.a.mr.SGE(0, 4096)}, RemoteAddr: l.b.mr.Addr(),
				RKey: l.b.mr.RKey()},
			uverbs.SendWR{WRID: 6, Opcode: uverbs.OpSend, Flags: uverbs.Signaled | uverbs.Fence,
				SGL: []uverbs.SGE{l.a.mr.SGE(0, 4096)}})
		l.success(t, l.a, 6, uverbs.WCSend)
		l.success(t, l.b, 1, uverbs.WCRecv)
		same(t, l.b.mr.Bytes()[32<<10:36<<10], l.b.mr.Bytes()[:4096])
	}
}

// TestDeviceRCGather gathers a message from several buffers and scatters it.
func TestDeviceRCGather(t *testing.T) {
	l := newLoop(t, nil)
	l.a.fill(3)
	receive(t, l.b.qp, uverbs.RecvWR{WRID: 1,
		SGL: []uverbs.SGE{l.b.mr.SGE(0, 5), l.b.mr.SGE(100, 1000), l.b.mr.SGE(5000, 5000)}})
	post(t, l.a.qp, uverbs.SendWR{WRID: 2, Opcode: uverbs.OpSend, Flags: uverbs.Signaled,
		SGL: []uverbs.SGE{l.a.mr.SGE(0, 1000), l.a.mr.SGE(2000, 1), l.a.mr.SGE(3000, 0), l.a.mr.SGE(4000, 2999)}})
	l.success(t, l.a, 2, uverbs.WCSend)
	l.success(t, l.b, 1, uverbs.WCRecv)
	a, b := l.a.mr.Bytes(), l.b.mr.Bytes()
	sent := append(append(append([]byte{}, a[:1000]...), a[2000]), a[4000:6999]...)
	got := append(append(append([]byte{}, b[:5]...), b[100:1100]...), b[5000:5000+2995]...)
	same(t, got, sent)
}

// TestDeviceRCInline overwrites inline data right after the post, and checks that the old data is
// sent.
func TestDeviceRCInline(t *testing.T) {
	l := newLoop(t, nil)
	limit := l.a.qp.Cap().MaxInline
	if limit < 128 {
		t.Fatalf("MaxInline is %d, asked for 128", limit)
	}
	data := make([]byte, limit)
	for _, n := range []int{0, 1, 63, 64, 65, limit} {
		for i := range data {
			data[i] = byte(n + i)
		}
		receive(t, l.b.qp, uverbs.RecvWR{WRID: 1, SGL: []uverbs.SGE{l.b.mr.SGE(0, limit)}})
		post(t, l.a.qp, uverbs.SendWR{WRID: 2, Opcode: uverbs.OpSend, Flags: uverbs.Signaled, Inline: data[:n]})
		clear(data)
		l.success(t, l.a, 2, uverbs.WCSend)
		if wc := l.success(t, l.b, 1, uverbs.WCRecv); int(wc.ByteLen) != n {
			t.Fatalf("received %d bytes, sent %d", wc.ByteLen, n)
		}
		for i, c := range l.b.mr.Bytes()[:n] {
			if c != byte(n+i) {
				t.Fatalf("size %d: byte %d is %#x", n, i, c)
			}
		}
	}
}

// TestDeviceRCBatch posts a batch of every operation with one doorbell and one completion.
func TestDeviceRCBatch(t *testing.T) {
	l := newLoop(t, nil)
	l.a.fill(1)
	l.b.fill(2)
	for i := range 3 {
		receive(t, l.b.qp, uverbs.RecvWR{WRID: uint64(i), SGL: []uverbs.SGE{l.b.mr.SGE(8192*(i+1), 4096)}})
	}
	b := l.a.qp.StartSend()
	b.Write(1, 0, l.b.mr.Addr()+40000, l.b.mr.RKey())
	b.SGE(l.a.mr.SGE(0, 100))
	b.SGE(l.a.mr.SGE(200, 100))
	b.SendInline(2, 0, []byte("inline"))
	b.SendImm(3, 0, 33)
	b.SGE(l.a.mr.SGE(0, 4096))
	b.WriteImm(4, 0, l.b.mr.Addr()+50000, l.b.mr.RKey(), 44)
	b.Inline([]byte("write"))
	b.WriteSGE(6, 0, l.b.mr.Addr()+51000, l.b.mr.RKey(), l.a.mr.SGE(300, 50))
	b.WriteInline(7, 0, l.b.mr.Addr()+52000, l.b.mr.RKey(), []byte("write in one call"))
	b.ReadSGE(5, uverbs.Signaled, l.b.mr.Addr(), l.b.mr.RKey(), l.a.mr.SGE(60000, 1000))
	check(t, b.Submit())
	b.Abort() // does nothing after Submit

	l.success(t, l.a, 5, uverbs.WCRead)
	l.success(t, l.b, 0, uverbs.WCRecv)
	if wc := l.success(t, l.b, 1, uverbs.WCRecv); wc.Imm != 33 {
		t.Fatalf("immediate %d", wc.Imm)
	}
	if wc := l.success(t, l.b, 2, uverbs.WCRecvRDMAImm); wc.Imm != 44 || wc.ByteLen != 5 {
		t.Fatalf("received %+v", wc)
	}
	abuf, bbuf := l.a.mr.Bytes(), l.b.mr.Bytes()
	same(t, bbuf[40000:40100], abuf[:100])
	same(t, bbuf[40100:40200], abuf[200:300])
	same(t, bbuf[8192:8198], []byte("inline"))
	same(t, bbuf[16384:16384+4096], abuf[:4096])
	same(t, bbuf[50000:50005], []byte("write"))
	same(t, bbuf[51000:51050], abuf[300:350])
	same(t, bbuf[52000:52017], []byte("write in one call"))
	same(t, abuf[60000:61000], bbuf[:1000])
}

// TestDeviceRCBatchAbort checks that a batch that is aborted, or has an invalid operation,
// posts nothing.
func TestDeviceRCBatchAbort(t *testing.T) {
	l := newLoop(t, nil)
	b := l.a.qp.StartSend()
	b.Send(1, uverbs.Signaled)
	b.Abort()
	b = l.a.qp.StartSend()
	b.Send(2, uverbs.Signaled)
	b.Send(3, uverbs.Signaled)
	b.SGE(l.a.mr.SGE(0, bufSize+1))
	b.Send(4, uverbs.Signaled)
	if err := b.Submit(); !errors.Is(err, uverbs.ErrRange) {
		t.Fatalf("Submit: %v", err)
	}
	receive(t, l.b.qp, uverbs.RecvWR{WRID: 1})
	post(t, l.a.qp, uverbs.SendWR{WRID: 5, Opcode: uverbs.OpSend, Flags: uverbs.Signaled})
	l.success(t, l.a, 5, uverbs.WCSend)
}

// TestDeviceQueueFull fills the send queue, and checks that posting stops at the first request
// without room, and that all before it complete.
func TestDeviceQueueFull(t *testing.T) {
	l := newLoop(t, func(c *uverbs.QPConfig) { c.MaxSendWR, c.MaxRecvWR = 4, 4 })
	room := l.a.qp.Cap().MaxSendWR
	list := make([]uverbs.SendWR, 1000)
	for i := range list {
		list[i] = uverbs.SendWR{WRID: uint64(i), Opcode: uverbs.OpWrite, Flags: uverbs.Signaled,
			SGL: []uverbs.SGE{l.a.mr.SGE(0, 8)}, RemoteAddr: l.b.mr.Addr(), RKey: l.b.mr.RKey()}
	}
	n, err := l.a.qp.PostSend(list...)
	if !errors.Is(err, uverbs.ErrQueueFull) || n < room || n == len(list) {
		t.Fatalf("PostSend = %d, %v; the queue has room for %d", n, err, room)
	}
	for i := range n {
		l.success(t, l.a, uint64(i), uverbs.WCWrite)
	}
	rlist := make([]uverbs.RecvWR, 1000)
	if n, err := l.b.qp.PostRecv(rlist...); !errors.Is(err, uverbs.ErrQueueFull) || n < 4 {
		t.Fatalf("PostRecv = %d, %v", n, err)
	}
}

// TestDeviceBadRequests posts requests that are refused, each after a valid one that completes.
func TestDeviceBadRequests(t *testing.T) {
	l := newLoop(t, nil)
	sge := l.a.mr.SGE(0, 8)
	inline := make([]byte, l.a.qp.Cap().MaxInline+1)
	many := make([]uverbs.SGE, l.a.qp.Cap().MaxSendSGE+1)
	tests := []struct {
		name string
		wr   uverbs.SendWR
		want error
	}{
		{"range", uverbs.SendWR{Opcode: uverbs.OpSend, SGL: []uverbs.SGE{sge, l.a.mr.SGE(1, bufSize)}}, uverbs.ErrRange},
		{"negative", uverbs.SendWR{Opcode: uverbs.OpSend, SGL: []uverbs.SGE{l.a.mr.SGE(-1, 8)}}, uverbs.ErrRange},
		{"too long", uverbs.SendWR{Opcode: uverbs.OpSend, SGL: []uverbs.SGE{{Length: 1 << 31}, {Length: 1}}},
			uverbs.ErrRange},
		{"SGEs", uverbs.SendWR{Opcode: uverbs.OpSend, SGL: many}, uverbs.ErrTooManySGEs},
		{"inline", uverbs.SendWR{Opcode: uverbs.OpSend, Inline: inline}, uverbs.ErrInlineTooLong},
		{"inline and SGL", uverbs.SendWR{Opcode: uverbs.OpSend, Inline: inline[:1], SGL: []uverbs.SGE{sge}},
			uverbs.ErrMalformed},
		{"inline READ", uverbs.SendWR{Opcode: uverbs.OpRead, Inline: inline[:1]}, uverbs.ErrMalformed},
		{"opcode", uverbs.SendWR{Opcode: 77}, uverbs.ErrOpcode},
		{"flags", uverbs.SendWR{Opcode: uverbs.OpSend, Flags: 1 << 7}, uverbs.ErrOpcode},
	}
	for i, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			good := uverbs.SendWR{WRID: uint64(i), Opcode: uverbs.OpWrite, Flags: uverbs.Signaled,
				SGL: []uverbs.SGE{sge}, RemoteAddr: l.b.mr.Addr(), RKey: l.b.mr.RKey()}
			n, err := l.a.qp.PostSend(good, test.wr, good)
			if n != 1 || !errors.Is(err, test.want) {
				t.Fatalf("PostSend = %d, %v; want 1, %v", n, err, test.want)
			}
			l.success(t, l.a, uint64(i), uverbs.WCWrite)
		})
	}
	if n, err := l.a.qp.PostRecv(uverbs.RecvWR{SGL: []uverbs.SGE{l.a.mr.SGE(0, bufSize+1)}}); n != 0 ||
		!errors.Is(err, uverbs.ErrRange) {
		t.Fatalf("PostRecv = %d, %v", n, err)
	}
}

// TestDeviceRemoteErrors breaks each rule of remote access, and checks that the request completes
// with the right status, that the QP is in ERR, and that the requests after it are flushed.
func TestDeviceRemoteErrors(t *testing.T) {
	type breach func(*testing.T, *loop) uverbs.SendWR
	tests := []struct {
		name   string
		breach breach
		want   uverbs.WCStatus
		// or lists the statuses that rxe reports instead, depending on the kernel.
		or []uverbs.WCStatus
	}{
		{"WRITE with a wrong rkey", func(t *testing.T, l *loop) uverbs.SendWR {
			return uverbs.SendWR{Opcode: uverbs.OpWrite, SGL: []uverbs.SGE{l.a.mr.SGE(0, 8)}, RemoteAddr: l.b.mr.Addr(),
				RKey: l.b.mr.RKey() + 0x100}
		}, uverbs.WCRemAccessErr, nil},
		{"WRITE behind the end", func(t *testing.T, l *loop) uverbs.SendWR {
			return uverbs.SendWR{Opcode: uverbs.OpWrite, SGL: []uverbs.SGE{l.a.mr.SGE(0, 8)},
				RemoteAddr: l.b.mr.Addr() + bufSize - 4, RKey: l.b.mr.RKey()}
		}, uverbs.WCRemAccessErr, nil},
		{"READ of memory that may not be read", func(t *testing.T, l *loop) uverbs.SendWR {
			mr := must(l.pd.Alloc(4096, uverbs.LocalWrite))(t)
			return uverbs.SendWR{Opcode: uverbs.OpRead, SGL: []uverbs.SGE{l.a.mr.SGE(0, 8)}, RemoteAddr: mr.Addr(),
				RKey: mr.RKey()}
		}, uverbs.WCRemAccessErr, nil},
		{"READ into memory without LocalWrite", func(t *testing.T, l *loop) uverbs.SendWR {
			mr := must(l.pd.Alloc(4096, 0))(t)
			return uverbs.SendWR{Opcode: uverbs.OpRead, SGL: []uverbs.SGE{mr.SGE(0, 8)}, RemoteAddr: l.b.mr.Addr(),
				RKey: l.b.mr.RKey()}
		}, uverbs.WCLocProtErr, nil},
		{"SEND from a closed MR", func(t *testing.T, l *loop) uverbs.SendWR {
			mr := must(l.pd.Alloc(4096, 0))(t)
			sge := mr.SGE(0, 8)
			check(t, mr.Close())
			receive(t, l.b.qp, uverbs.RecvWR{SGL: []uverbs.SGE{l.b.mr.SGE(0, 8)}})
			return uverbs.SendWR{Opcode: uverbs.OpSend, SGL: []uverbs.SGE{sge}}
			// Newer kernels flush it before they find out the cause.
		}, uverbs.WCLocProtErr, []uverbs.WCStatus{uverbs.WCLocQPOpErr, uverbs.WCWRFlushErr}},
		{"SEND longer than the receive", func(t *testing.T, l *loop) uverbs.SendWR {
			receive(t, l.b.qp, uverbs.RecvWR{SGL: []uverbs.SGE{l.b.mr.SGE(0, 8)}})
			return uverbs.SendWR{Opcode: uverbs.OpSend, SGL: []uverbs.SGE{l.a.mr.SGE(0, 9)}}
			// rxe replies with another NAK code.
		}, uverbs.WCRemInvReqErr, []uverbs.WCStatus{uverbs.WCRemOpErr}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			l := newLoop(t, nil)
			bad := test.breach(t, l)
			bad.WRID, bad.Flags = 1, uverbs.Signaled
			behind := uverbs.SendWR{WRID: 2, Opcode: uverbs.OpWrite, SGL: []uverbs.SGE{l.a.mr.SGE(0, 8)},
				RemoteAddr: l.b.mr.Addr(), RKey: l.b.mr.RKey()}
			post(t, l.a.qp, bad, behind)
			if wc := l.completion(t, l.a); wc.WRID != 1 || wc.Status != test.want && !slices.Contains(test.or, wc.Status) {
				t.Fatalf("completion %d: %v; want 1: %v", wc.WRID, wc.Err(), test.want)
			}
			if wc := l.completion(t, l.a); wc.WRID != 2 || !errors.Is(wc.Err(), uverbs.WCWRFlushErr) {
				t.Fatalf("completion %d: %v; want 2 flushed", wc.WRID, wc.Err())
			}
			a := must(l.a.qp.Query(uverbs.MaskState))(t)
			if a.State != uverbs.StateErr {
				t.Fatalf("the QP is in %v", a.State)
			}
			l.revive(t)
		})
	}
}

// revive moves both QPs through RESET to RTS and sends a message.
func (l *loop) revive(t *testing.T) {
	t.Helper()
	l.reconnect(t)
	receive(t, l.b.qp, uverbs.RecvWR{WRID: 7})
	post(t, l.a.qp, uverbs.SendWR{WRID: 8, Opcode: uverbs.OpSend, Flags: uverbs.Signaled})
	l.success(t, l.a, 8, uverbs.WCSend)
	l.success(t, l.b, 7, uverbs.WCRecv)
}

// reconnect moves both QPs through RESET to RTS.
func (l *loop) reconnect(t *testing.T) {
	t.Helper()
	for _, e := range []end{l.a, l.b} {
		check(t, e.qp.Modify(uverbs.QPAttr{State: uverbs.StateReset}, uverbs.MaskState))
	}
	var wcs [256]uverbs.WC
	for _, e := range []end{l.a, l.b} {
		must(e.cq.Poll(wcs[:]))(t) // drops the completions so far
	}
	ea, eb := endpoint(t, l.a.qp), endpoint(t, l.b.qp)
	check(t, l.a.qp.Connect(eb))
	check(t, l.b.qp.Connect(ea))
}

// TestDeviceMany wraps around the rings many times with a mix of lists, unsignaled requests and
// batches.
func TestDeviceMany(t *testing.T) {
	for _, single := range []bool{false, true} {
		t.Run(fmt.Sprintf("single=%t", single), func(t *testing.T) {
			l := newLoop(t, func(c *uverbs.QPConfig) { c.SingleGoroutine = single })
			l.a.fill(5)
			const rounds, list = 200, 16
			for round := range rounds {
				var recvs [list]uverbs.RecvWR
				for i := range recvs {
					recvs[i] = uverbs.RecvWR{WRID: uint64(i), SGL: []uverbs.SGE{l.b.mr.SGE(i*1024, 1024)}}
				}
				receive(t, l.b.qp, recvs[:]...)
				b := l.a.qp.StartSend()
				for i := range list {
					var f uverbs.SendFlags
					if i == list-1 {
						f = uverbs.Signaled
					}
					b.SendImm(uint64(i), f, uint32(round*list+i))
					b.SGE(l.a.mr.SGE(round+i, 64*i))
				}
				check(t, b.Submit())
				for i := range list {
					wc := l.success(t, l.b, uint64(i), uverbs.WCRecv)
					if int(wc.ByteLen) != 64*i || wc.Imm != uint32(round*list+i) {
						t.Fatalf("round %d message %d: %+v", round, i, wc)
					}
					same(t, l.b.mr.Bytes()[i*1024:][:64*i], l.a.mr.Bytes()[round+i:][:64*i])
				}
				l.success(t, l.a, list-1, uverbs.WCSend)
			}
		})
	}
}
