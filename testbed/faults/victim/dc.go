package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/goverbs/goverbs/provider/mlx5"
	"github.com/goverbs/goverbs/uverbs"
)

// A star has a DCI and two DCTs, and device memory that the DCI writes to.
type star struct {
	cq      *uverbs.CQ // of the DCI
	srq     *uverbs.SRQ
	dci     *uverbs.QP
	dcts    [2]*uverbs.QP
	ah      *uverbs.AH
	dm      *uverbs.DM
	memory  *uverbs.MR // dm
	flow    chan error
	watcher chan error
}

const (
	dcKey     = 0xffeeddccbbaa9988
	starDepth = 64
	dmSize    = 4096
)

// newStar creates a star. streams is the number of streams of the DCI that may have failed before the DCI fails, or
// empty.
func (v *victim) newStar(streams string) (_ string, err error) {
	s := &v.star
	if s.cq, err = v.dev.CreateCQ(uverbs.CQConfig{Entries: 256}); err != nil {
		return "", err
	}
	if s.srq, err = v.pd.CreateSRQ(uverbs.SRQConfig{MaxWR: 16}); err != nil {
		return "", err
	}
	if s.dm, err = v.dev.AllocDM(uverbs.DMConfig{Size: dmSize}); err != nil {
		return "", err
	}
	if s.memory, err = v.pd.RegDM(s.dm, 0, dmSize, uverbs.LocalWrite|uverbs.RemoteWrite); err != nil {
		return "", err
	}
	cfg := uverbs.QPConfig{Type: uverbs.DCI, SendCQ: s.cq, MaxSendWR: starDepth}
	if streams != "" {
		n, err := strconv.Atoi(streams)
		if err != nil {
			return "", err
		}
		cfg.DCIStreams = uverbs.DCIStreams{Concurrent: n, Errored: n}
	}
	if s.dci, err = v.pd.CreateQP(cfg); err != nil {
		return "", err
	}
	for i := range s.dcts {
		if err := v.newDCT(i); err != nil {
			return "", err
		}
	}
	self, err := s.dcts[0].Endpoint()
	if err != nil {
		return "", err
	}
	attr, err := s.dci.AHAttr(self)
	if err != nil {
		return "", err
	}
	if s.ah, err = v.pd.CreateAH(attr); err != nil {
		return "", err
	}
	return "", s.dci.Ready()
}

// createDCT creates a DCT in state RESET.
func (v *victim) createDCT() (*uverbs.QP, error) {
	return v.pd.CreateQP(uverbs.QPConfig{Type: uverbs.DCT, RecvCQ: v.cq, SRQ: v.star.srq, DCKey: dcKey,
		Access: uverbs.RemoteWrite})
}

func (v *victim) newDCT(i int) (err error) {
	if v.star.dcts[i], err = v.createDCT(); err != nil {
		return err
	}
	return v.star.dcts[i].Ready()
}

// dctOf parses the index of a DCT.
func dctOf(word string) (int, error) {
	i, err := strconv.Atoi(word)
	if err != nil || i < 0 || i > 1 {
		return 0, fmt.Errorf("DCT %q: there are 0 and 1", word)
	}
	return i, nil
}

func (v *victim) destroyDCT(arg string) (string, error) {
	i, err := dctOf(arg)
	if err != nil {
		return "", err
	}
	return "", v.star.dcts[i].Close()
}

func (v *victim) replaceDCT(arg string) (string, error) {
	i, err := dctOf(arg)
	if err != nil {
		return "", err
	}
	return "", v.newDCT(i)
}

func (s *star) write(v *victim, dct int) uverbs.SendWR {
	return uverbs.SendWR{Opcode: uverbs.OpWrite, Flags: uverbs.Signaled, SGL: []uverbs.SGE{v.mr.SGE(0, 64)},
		RemoteAddr: s.memory.Addr(), RKey: s.memory.RKey(), AH: s.ah, QPN: s.dcts[dct].QPN(), DCKey: dcKey}
}

// writeOnce writes to device memory through a DCT. The words are the DCT, the stream, and what is wrong: "key" or
// "rkey". writeOnce returns the status and the state of the DCI.
func (v *victim) writeOnce(arg string) (string, error) {
	words := strings.Fields(arg + " 0 right")
	i, err := dctOf(words[0])
	if err != nil {
		return "", err
	}
	stream, err := strconv.ParseUint(words[1], 0, 16)
	if err != nil {
		return "", err
	}
	wr := v.star.write(v, i)
	wr.DCStream = uint16(stream)
	switch words[2] {
	case "key":
		wr.DCKey++
	case "rkey":
		wr.RKey ^= 0xffff00
	}
	if _, err := v.star.dci.PostSend(wr); err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var wcs [1]uverbs.WC
	if _, err := v.star.cq.PollWait(ctx, wcs[:]); err != nil {
		return "", err
	}
	a, err := v.star.dci.Query(uverbs.MaskState)
	return status(&wcs[0]) + ", " + a.State.String(), err
}

// status describes the result of a request.
func status(wc *uverbs.WC) string {
	if err := wc.Err(); err != nil {
		return fmt.Sprintf("%v (vendor %#x)", err, wc.VendorErr)
	}
	return "ok"
}

func (v *victim) resetStream(arg string) (string, error) {
	n, err := strconv.ParseUint(arg, 0, 16)
	if err != nil {
		return "", err
	}
	return "", mlx5.ResetDCIStream(v.star.dci, uint16(n))
}

// recover drains the DCI, checks that what is left has been flushed, and makes the DCI usable again.
func (v *victim) recover(string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	q := v.star.dci
	if err := q.Drain(ctx); err != nil {
		return "", err
	}
	flushed := 0
	var wcs [16]uverbs.WC
	for {
		n, err := v.star.cq.Poll(wcs[:])
		if err != nil {
			return "", err
		}
		if n == 0 {
			break
		}
		for i := range wcs[:n] {
			if err := wcs[i].Err(); !errors.Is(err, uverbs.WCWRFlushErr) {
				return "", fmt.Errorf("after an error a request completes: %v", err)
			}
		}
		flushed += n
	}
	if err := q.Modify(uverbs.QPAttr{State: uverbs.StateReset}, uverbs.MaskState); err != nil {
		return "", err
	}
	return strconv.Itoa(flushed), q.Ready()
}

// startFlow starts to write to device memory through DCT 0, and returns when the first writes have completed.
func (v *victim) startFlow(string) (string, error) {
	s := v.star
	flow, flowing := make(chan error, 1), make(chan bool)
	v.star.flow = flow
	wr := s.write(v, 0)
	go func() { flow <- s.run(wr, flowing) }()
	select {
	case <-flowing:
		return "", nil
	case err := <-flow:
		return "", fmt.Errorf("no write has completed: %w", err)
	}
}

// run posts a request as often as there is room until a post, a wait or a request fails.
func (s *star) run(wr uverbs.SendWR, flowing chan<- bool) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var wcs [16]uverbs.WC
	for done := 0; ; {
		for {
			_, err := s.dci.PostSend(wr)
			if err == uverbs.ErrQueueFull {
				break
			}
			if err != nil {
				return fmt.Errorf("post: %w", err)
			}
		}
		n, err := s.cq.PollWait(ctx, wcs[:])
		if err != nil {
			return fmt.Errorf("wait: %w", err)
		}
		for i := range wcs[:n] {
			if err := wcs[i].Err(); err != nil {
				return fmt.Errorf("request: %w", err)
			}
		}
		if done < starDepth && done+n >= starDepth {
			close(flowing)
		}
		done += n
	}
}

func (v *victim) flowEnd(string) (string, error) { return fmt.Sprint(<-v.star.flow), nil }

// watch starts to read and write device memory, until that fails.
func (v *victim) watch(string) (string, error) {
	dm, watcher := v.star.dm, make(chan error, 1)
	v.star.watcher = watcher
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		p := make([]byte, 64)
		for ctx.Err() == nil {
			if _, err := dm.ReadAt(p, 64); err != nil {
				watcher <- err
				return
			}
			if _, err := dm.WriteAt(p, 128); err != nil {
				watcher <- err
				return
			}
		}
		watcher <- ctx.Err()
	}()
	return "", nil
}

func (v *victim) watchEnd(string) (string, error) { return fmt.Sprint(<-v.star.watcher), nil }
