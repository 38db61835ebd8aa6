package mistakes

import (
	"context"
	"errors"
	"fmt"

	"github.com/goverbs/goverbs/uverbs"
)

// Each of these programs makes one mistake, in the line with the comment, and returns what it sees of it.

func receiveLate(device string) string {
	p := newPair(device, config{})
	defer p.close()
	wr := uverbs.SendWR{Opcode: uverbs.OpSend, Flags: uverbs.Signaled, Inline: []byte("hello")}
	must(p.a.qp.PostSend(wr)) // mistake
	return completion(p.a, lost)
}

func datagramWithoutReceive(device string) string {
	p := newPair(device, config{kind: uverbs.UD})
	defer p.close()
	wr := uverbs.SendWR{Opcode: uverbs.OpSend,
		AH: p.to(p.b), QPN: p.b.qp.QPN(), QKey: qkey, Inline: []byte("hello")}
	must(p.a.qp.PostSend(wr)) // mistake
	return completion(p.b, lost)
}

func emptySRQ(device string) string {
	p := open(device)
	srq := must(p.pd.CreateSRQ(uverbs.SRQConfig{MaxWR: 8}))
	p.connect(config{srq: srq})
	defer func() {
		check(p.b.qp.Close())
		check(srq.Close())
		p.close()
	}()
	must(srq.PostRecv(uverbs.RecvWR{SGL: []uverbs.SGE{p.b.mr.SGE(0, 64)}}))
	must(p.a.qp.PostSend(uverbs.SendWR{Opcode: uverbs.OpSend, Inline: []byte("one")}))
	wr := uverbs.SendWR{Opcode: uverbs.OpSend, Flags: uverbs.Signaled, Inline: []byte("two")}
	must(p.a.qp.PostSend(wr)) // mistake
	return completion(p.a, lost)
}

func wrongRKey(device string) string {
	p := newPair(device, config{})
	defer p.close()
	wr := uverbs.SendWR{Opcode: uverbs.OpWrite, Flags: uverbs.Signaled,
		SGL: []uverbs.SGE{p.a.mr.SGE(0, 8)}, RemoteAddr: p.b.mr.Addr(), RKey: p.b.mr.RKey() ^ keys}
	must(p.a.qp.PostSend(wr)) // mistake
	return completion(p.a, patience)
}

func closedMR(device string) string {
	p := newPair(device, config{})
	defer p.close()
	mr := must(p.pd.Alloc(size, all))
	sge := mr.SGE(0, 64)
	check(mr.Close())
	must(p.b.qp.PostRecv(uverbs.RecvWR{SGL: []uverbs.SGE{p.b.mr.SGE(0, 64)}}))
	wr := uverbs.SendWR{Opcode: uverbs.OpSend, Flags: uverbs.Signaled, SGL: []uverbs.SGE{sge}}
	must(p.a.qp.PostSend(wr)) // mistake
	return completion(p.a, patience)
}

func closedRemoteMR(device string) string {
	p := newPair(device, config{})
	defer p.close()
	mr := must(p.pd.Alloc(size, all))
	addr, rkey := mr.Addr(), mr.RKey()
	check(mr.Close())
	wr := uverbs.SendWR{Opcode: uverbs.OpRead, Flags: uverbs.Signaled,
		SGL: []uverbs.SGE{p.a.mr.SGE(0, 8)}, RemoteAddr: addr, RKey: rkey}
	must(p.a.qp.PostSend(wr)) // mistake
	return completion(p.a, patience)
}

func remoteBounds(device string) string {
	p := newPair(device, config{})
	defer p.close()
	wr := uverbs.SendWR{Opcode: uverbs.OpWrite, Flags: uverbs.Signaled,
		SGL: []uverbs.SGE{p.a.mr.SGE(0, 64)}, RemoteAddr: p.b.mr.Addr() + size - 32, RKey: p.b.mr.RKey()}
	must(p.a.qp.PostSend(wr)) // mistake
	return completion(p.a, patience)
}

func localBounds(device string) string {
	p := newPair(device, config{})
	defer p.close()
	sge := p.a.mr.SGE(0, 64)
	sge.Addr += size
	must(p.b.qp.PostRecv(uverbs.RecvWR{SGL: []uverbs.SGE{p.b.mr.SGE(0, 64)}}))
	wr := uverbs.SendWR{Opcode: uverbs.OpSend, Flags: uverbs.Signaled, SGL: []uverbs.SGE{sge}}
	must(p.a.qp.PostSend(wr)) // mistake
	return completion(p.a, patience)
}

func regionWithoutRemoteWrite(device string) string {
	p := newPair(device, config{})
	defer p.close()
	mr := must(p.pd.Alloc(size, uverbs.LocalWrite|uverbs.RemoteRead))
	defer mr.Close()
	wr := uverbs.SendWR{Opcode: uverbs.OpWrite, Flags: uverbs.Signaled,
		SGL: []uverbs.SGE{p.a.mr.SGE(0, 8)}, RemoteAddr: mr.Addr(), RKey: mr.RKey()}
	must(p.a.qp.PostSend(wr)) // mistake
	return completion(p.a, patience)
}

func qpWithoutRemoteRead(device string) string {
	p := newPair(device, config{access: uverbs.RemoteWrite})
	defer p.close()
	wr := uverbs.SendWR{Opcode: uverbs.OpRead, Flags: uverbs.Signaled,
		SGL: []uverbs.SGE{p.a.mr.SGE(0, 8)}, RemoteAddr: p.b.mr.Addr(), RKey: p.b.mr.RKey()}
	must(p.a.qp.PostSend(wr)) // mistake
	return completion(p.a, patience)
}

func readWithoutLocalWrite(device string) string {
	p := newPair(device, config{})
	defer p.close()
	mr := must(p.pd.Alloc(size, 0))
	defer mr.Close()
	wr := uverbs.SendWR{Opcode: uverbs.OpRead, Flags: uverbs.Signaled,
		SGL: []uverbs.SGE{mr.SGE(0, 8)}, RemoteAddr: p.b.mr.Addr(), RKey: p.b.mr.RKey()}
	must(p.a.qp.PostSend(wr)) // mistake
	return completion(p.a, patience)
}

func wrongPD(device string) string {
	p := newPair(device, config{})
	defer p.close()
	pd := must(p.dev.AllocPD())
	defer pd.Close()
	mr := must(pd.Alloc(size, all))
	defer mr.Close()
	wr := uverbs.SendWR{Opcode: uverbs.OpWrite, Flags: uverbs.Signaled,
		SGL: []uverbs.SGE{p.a.mr.SGE(0, 8)}, RemoteAddr: mr.Addr(), RKey: mr.RKey()}
	must(p.a.qp.PostSend(wr)) // mistake
	return completion(p.a, patience)
}

func misalignedAtomic(device string) string {
	p := newPair(device, config{})
	defer p.close()
	wr := uverbs.SendWR{Opcode: uverbs.OpFetchAdd, Flags: uverbs.Signaled, CompareAdd: 1,
		SGL: []uverbs.SGE{p.a.mr.SGE(0, 8)}, RemoteAddr: p.b.mr.Addr() + 4, RKey: p.b.mr.RKey()}
	must(p.a.qp.PostSend(wr)) // mistake
	return completion(p.a, patience)
}

func shortReceive(device string) string {
	p := newPair(device, config{})
	defer p.close()
	must(p.b.qp.PostRecv(uverbs.RecvWR{SGL: []uverbs.SGE{p.b.mr.SGE(0, 16)}})) // mistake
	wr := uverbs.SendWR{Opcode: uverbs.OpSend, Flags: uverbs.Signaled, SGL: []uverbs.SGE{p.a.mr.SGE(0, 64)}}
	must(p.a.qp.PostSend(wr))
	return completion(p.a, patience)
}

func sharedReceives(device string) string {
	p := newPair(device, config{})
	defer p.close()
	for range 2 {
		must(p.b.qp.PostRecv(uverbs.RecvWR{SGL: []uverbs.SGE{p.b.mr.SGE(0, 64)}})) // mistake
	}
	for _, text := range []string{"first", "second"} {
		must(p.a.qp.PostSend(uverbs.SendWR{Opcode: uverbs.OpSend, Flags: uverbs.Signaled, Inline: []byte(text)}))
		completion(p.a, patience)
	}
	return completion(p.b, patience)
}

func datagramWithoutHeaderRoom(device string) string {
	p := newPair(device, config{kind: uverbs.UD})
	defer p.close()
	must(p.b.qp.PostRecv(uverbs.RecvWR{SGL: []uverbs.SGE{p.b.mr.SGE(0, 64)}})) // mistake
	wr := uverbs.SendWR{Opcode: uverbs.OpSend, AH: p.to(p.b), QPN: p.b.qp.QPN(), QKey: qkey,
		SGL: []uverbs.SGE{p.a.mr.SGE(0, 64)}}
	must(p.a.qp.PostSend(wr))
	return completion(p.b, lost)
}

func wrongQKey(device string) string {
	p := newPair(device, config{kind: uverbs.UD})
	defer p.close()
	must(p.b.qp.PostRecv(uverbs.RecvWR{SGL: []uverbs.SGE{p.b.mr.SGE(0, 128)}}))
	wr := uverbs.SendWR{Opcode: uverbs.OpSend, AH: p.to(p.b), QPN: p.b.qp.QPN(), QKey: 1, Inline: []byte("hello")}
	must(p.a.qp.PostSend(wr)) // mistake
	return completion(p.b, lost)
}

func wrongQPN(device string) string {
	p := newPair(device, config{kind: uverbs.UD})
	defer p.close()
	must(p.b.qp.PostRecv(uverbs.RecvWR{SGL: []uverbs.SGE{p.b.mr.SGE(0, 128)}}))
	wr := uverbs.SendWR{Opcode: uverbs.OpSend,
		AH: p.to(p.b), QPN: p.b.qp.QPN() + 100, QKey: qkey, Inline: []byte("x")}
	must(p.a.qp.PostSend(wr)) // mistake
	return completion(p.b, lost)
}

func peerNotConnected(device string) string {
	p := newPair(device, config{idle: true})
	defer p.close()
	wr := uverbs.SendWR{Opcode: uverbs.OpSend, Flags: uverbs.Signaled, Inline: []byte("hello")}
	must(p.a.qp.PostSend(wr)) // mistake
	return completion(p.a, patience)
}

func smallCQ(device string) string {
	p := newPair(device, config{entries: 3, sends: 8})
	defer p.close()
	for range 4 {
		wr := uverbs.SendWR{Opcode: uverbs.OpWrite, Flags: uverbs.Signaled,
			SGL: []uverbs.SGE{p.a.mr.SGE(0, 8)}, RemoteAddr: p.b.mr.Addr(), RKey: p.b.mr.RKey()}
		must(p.a.qp.PostSend(wr)) // mistake
	}
	return completion(p.a, patience)
}

func neverSignaled(device string) string {
	p := newPair(device, config{sends: 8})
	defer p.close()
	for n := 0; n < 1000; n++ {
		_, err := p.a.qp.PostSend(uverbs.SendWR{Opcode: uverbs.OpWrite, SGL: []uverbs.SGE{p.a.mr.SGE(0, 8)}, // mistake
			RemoteAddr: p.b.mr.Addr(), RKey: p.b.mr.RKey()})
		if err != nil {
			return fmt.Sprint(err)
		}
	}
	return "1000 requests"
}

func armedAfterCompletion(device string) string {
	p := newPair(device, config{})
	defer p.close()
	must(p.b.qp.PostRecv(uverbs.RecvWR{SGL: []uverbs.SGE{p.b.mr.SGE(0, 64)}}))
	must(p.a.qp.PostSend(uverbs.SendWR{Opcode: uverbs.OpSend, Flags: uverbs.Signaled, Inline: []byte("hello")}))
	completion(p.a, patience) // the message has arrived
	check(p.b.cq.Arm(false))  // mistake
	ctx, cancel := context.WithTimeout(context.Background(), lost)
	defer cancel()
	if err := p.b.cq.WaitEvent(ctx); errors.Is(err, context.DeadlineExceeded) {
		return noCompletion
	} else if err != nil {
		return fmt.Sprint(err)
	}
	return "event"
}

func usedAfterClose(device string) string {
	p := open(device)
	defer func() { check(errors.Join(p.pd.Close(), p.dev.Close())) }()
	mr := must(p.pd.Alloc(size, all))
	cq := must(p.dev.CreateCQ(uverbs.CQConfig{Entries: 8}))
	qp := must(p.pd.CreateQP(uverbs.QPConfig{Type: uverbs.RC, SendCQ: cq, MaxSendWR: 8}))
	check(errors.Join(qp.Close(), cq.Close(), mr.Close()))
	_, err := qp.PostSend(uverbs.SendWR{Opcode: uverbs.OpSend})
	return fmt.Sprint(err)
}

func wrongState(device string) string {
	p := newPair(device, config{idle: true})
	defer p.close()
	_, err := p.b.qp.PostSend(uverbs.SendWR{Opcode: uverbs.OpSend, SGL: []uverbs.SGE{p.b.mr.SGE(0, 8)}})
	return fmt.Sprint(err)
}

// deviceMemory calls f with a pair and 256 bytes of device memory, of which peers may access 128. It
// returns what f sees, or the error of AllocDM on a device without such memory.
func deviceMemory(device string, f func(p *pair, dm *uverbs.DM, mr *uverbs.MR) string) string {
	p := newPair(device, config{})
	defer p.close()
	dm, err := p.dev.AllocDM(uverbs.DMConfig{Size: 256})
	if err != nil {
		return fmt.Sprint(err)
	}
	mr := must(p.pd.RegDM(dm, 64, 128, all))
	defer func() { check(errors.Join(mr.Close(), dm.Close())) }()
	return f(p, dm, mr)
}

func deviceMemoryInUse(device string) string {
	return deviceMemory(device, func(_ *pair, dm *uverbs.DM, _ *uverbs.MR) string { return fmt.Sprint(dm.Close()) })
}

func copyOutOfBounds(device string) string {
	return deviceMemory(device, func(_ *pair, dm *uverbs.DM, _ *uverbs.MR) string {
		_, err := dm.WriteAt(make([]byte, 64), 224)
		return fmt.Sprint(err)
	})
}

func deviceMemoryBounds(device string) string {
	return deviceMemory(device, func(p *pair, _ *uverbs.DM, mr *uverbs.MR) string {
		wr := uverbs.SendWR{Opcode: uverbs.OpWrite, Flags: uverbs.Signaled, SGL: []uverbs.SGE{p.a.mr.SGE(0, 64)},
			RemoteAddr: mr.Addr() + 96, RKey: mr.RKey()}
		must(p.a.qp.PostSend(wr)) // mistake
		return completion(p.a, patience)
	})
}

func closedDeviceMemory(device string) string {
	return deviceMemory(device, func(p *pair, dm *uverbs.DM, mr *uverbs.MR) string {
		wr := uverbs.SendWR{Opcode: uverbs.OpWrite, Flags: uverbs.Signaled, SGL: []uverbs.SGE{p.a.mr.SGE(0, 64)},
			RemoteAddr: mr.Addr(), RKey: mr.RKey()}
		check(errors.Join(mr.Close(), dm.Close()))
		must(p.a.qp.PostSend(wr)) // mistake
		return completion(p.a, patience)
	})
}

func deviceMemoryLeft(device string) string {
	dev := must(uverbs.Open(device))
	_, err := dev.AllocDM(uverbs.DMConfig{Size: 64}) // mistake
	if err != nil {
		check(dev.Close())
		return fmt.Sprint(err)
	}
	return "nothing"
}

func regionLeft(device string) string {
	dev := must(uverbs.Open(device))
	pd := must(dev.AllocPD())
	must(pd.Alloc(size, all)) // mistake
	return fmt.Sprint(pd.Close())
}

func contextLeft(device string) string {
	must(uverbs.Open(device)) // mistake
	return "nothing"
}

func goroutineLeft(device string) string {
	p := newPair(device, config{})
	defer p.close()
	go waitForever() // mistake
	return "nothing"
}

var never = make(chan struct{})

func waitForever() { <-never }
