package mistakes

import (
	"errors"
	"fmt"

	"github.com/goverbs/goverbs/uverbs"
)

// These programs use dynamically connected QPs, and are written as those in programs_test.go.

const dcKey = 0xffeeddcc

// A star is a DCI and a DCT of one device.
type star struct {
	pd       *uverbs.PD
	srq      *uverbs.SRQ
	dci, dct end
	ah       *uverbs.AH
}

// connected calls f with a DCI in state RTS and a DCT in state RTR, and closes them. If the device has no DC, it
// returns the error.
func connected(device string, f func(s *star) string) string {
	return dynamic(device, func(s *star) string {
		check(errors.Join(s.dct.qp.Ready(), s.dci.qp.Ready()))
		return f(s)
	})
}

// dynamic is connected with both in state RESET.
func dynamic(device string, f func(s *star) string) string {
	dev := must(uverbs.Open(device))
	s := &star{pd: must(dev.AllocPD())}
	for _, e := range []*end{&s.dci, &s.dct} {
		e.cq = must(dev.CreateCQ(uverbs.CQConfig{Entries: 64}))
		e.mr = must(s.pd.Alloc(size, all))
	}
	s.srq = must(s.pd.CreateSRQ(uverbs.SRQConfig{MaxWR: 8}))
	defer func() {
		check(errors.Join(s.srq.Close(), s.dci.cq.Close(), s.dct.cq.Close(), s.dci.mr.Close(), s.dct.mr.Close(),
			s.pd.Close(), dev.Close()))
	}()
	var err error
	s.dci.qp, err = s.pd.CreateQP(uverbs.QPConfig{Type: uverbs.DCI, SendCQ: s.dci.cq, MaxSendWR: 8, MaxInline: 16})
	if err != nil {
		return fmt.Sprint(err)
	}
	s.dct.qp = must(s.pd.CreateQP(uverbs.QPConfig{Type: uverbs.DCT, RecvCQ: s.dct.cq, SRQ: s.srq, DCKey: dcKey,
		Access: all &^ uverbs.LocalWrite}))
	self := must(s.dci.qp.Endpoint())
	s.ah = must(s.pd.CreateAH(must(s.dci.qp.AHAttr(self))))
	defer func() { check(errors.Join(s.ah.Close(), s.dci.qp.Close(), s.dct.qp.Close())) }()
	return f(s)
}

// write returns a WRITE to the DCT.
func (s *star) write() uverbs.SendWR {
	return uverbs.SendWR{Opcode: uverbs.OpWrite, Flags: uverbs.Signaled, SGL: []uverbs.SGE{s.dci.mr.SGE(0, 8)},
		RemoteAddr: s.dct.mr.Addr(), RKey: s.dct.mr.RKey(), AH: s.ah, QPN: s.dct.qp.QPN(), DCKey: dcKey}
}

func wrongDCKey(device string) string {
	return connected(device, func(s *star) string {
		wr := s.write()
		wr.DCKey++
		must(s.dci.qp.PostSend(wr)) // mistake
		return completion(s.dci, patience)
	})
}

func numberOfDCI(device string) string {
	return connected(device, func(s *star) string {
		wr := s.write()
		wr.QPN = s.dci.qp.QPN()
		must(s.dci.qp.PostSend(wr)) // mistake
		return completion(s.dci, patience)
	})
}

func dctNotReady(device string) string {
	return dynamic(device, func(s *star) string {
		check(s.dci.qp.Ready())
		must(s.dci.qp.PostSend(s.write())) // mistake
		return completion(s.dci, patience)
	})
}

func dctWithoutReceive(device string) string {
	return connected(device, func(s *star) string {
		wr := uverbs.SendWR{Opcode: uverbs.OpSend, Flags: uverbs.Signaled, Inline: []byte("hello"),
			AH: s.ah, QPN: s.dct.qp.QPN(), DCKey: dcKey}
		must(s.dci.qp.PostSend(wr)) // mistake
		return completion(s.dci, lost)
	})
}

func dctWithoutSRQ(device string) string {
	return dynamic(device, func(s *star) string {
		_, err := s.pd.CreateQP(uverbs.QPConfig{Type: uverbs.DCT, RecvCQ: s.dct.cq, DCKey: dcKey}) // mistake
		return fmt.Sprint(err)
	})
}

func noDCAddress(device string) string {
	return connected(device, func(s *star) string {
		wr := s.write()
		wr.AH = nil
		_, err := s.dci.qp.PostSend(wr) // mistake
		return fmt.Sprint(err)
	})
}

func streamOfDCI(device string) string {
	return connected(device, func(s *star) string {
		wr := s.write()
		wr.DCStream = 1
		_, err := s.dci.qp.PostSend(wr) // mistake
		return fmt.Sprint(err)
	})
}

func dciNotReady(device string) string {
	return dynamic(device, func(s *star) string {
		check(s.dct.qp.Ready())
		_, err := s.dci.qp.PostSend(s.write()) // mistake
		return fmt.Sprint(err)
	})
}
