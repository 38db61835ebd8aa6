package main

import (
	"context"
	"fmt"
	"runtime"

	"github.com/goverbs/goverbs/uverbs"
)

// traffic starts to send and returns when the first message has arrived. One goroutine
// posts until that fails, another waits for completions until that fails.
func (v *victim) traffic(string) (string, error) {
	flowing := make(chan bool)
	failed := [2]chan error{make(chan error, 1), make(chan error, 1)}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	go func() { failed[0] <- v.post(ctx) }()
	go func() { failed[1] <- v.wait(ctx, flowing) }()
	busy := make(chan [2]error, 1)
	v.busy = busy
	go func() {
		defer cancel()
		busy <- [2]error{<-failed[0], <-failed[1]}
	}()
	select {
	case <-flowing:
		return "", nil
	case errs := <-busy:
		return "", fmt.Errorf("no message has arrived: %v; %v", errs[0], errs[1])
	}
}

// post posts sends and receives as soon as there is room.
func (v *victim) post(ctx context.Context) error {
	for ctx.Err() == nil {
		_, err := v.qp[1].PostRecv(uverbs.RecvWR{SGL: []uverbs.SGE{v.mr.SGE(0, 64)}})
		if err == nil {
			_, err = v.qp[0].PostSend(v.send())
		}
		switch err {
		case nil:
		case uverbs.ErrQueueFull:
			runtime.Gosched()
		default:
			return err
		}
	}
	return ctx.Err()
}

// wait polls completions. It continues after failed completions.
func (v *victim) wait(ctx context.Context, flowing chan<- bool) error {
	var wcs [16]uverbs.WC
	for taken := 0; ; {
		n, err := v.cq.PollWait(ctx, wcs[:])
		if err != nil {
			return err
		}
		if taken < 100 && taken+n >= 100 {
			close(flowing)
		}
		taken += n
	}
}

// stopped waits until the traffic has ended and returns the errors.
func (v *victim) stopped(string) (string, error) {
	errs := <-v.busy
	return fmt.Sprintf("post: %v; wait: %v", errs[0], errs[1]), nil
}

// event waits for the next event.
func (v *victim) event(string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	e, err := v.dev.NextEvent(ctx)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%v, port %d", e.Type, e.Port), nil
}
