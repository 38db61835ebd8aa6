package main

/*
#include <infiniband/verbs.h>

static void set_remote(struct ibv_send_wr *wr, uint64_t addr, uint32_t rkey)
{
	wr->wr.rdma.remote_addr = addr;
	wr->wr.rdma.rkey = rkey;
}

// Members of unions and bits are C's to set, once for a request.
static void prepare(struct ibv_send_wr *wrs, int n, uint64_t addr, uint32_t rkey)
{
	int i;
	for (i = 0; i < n; i++)
		set_remote(&wrs[i], addr, rkey);
}

static int query_port(struct ibv_context *ctx)
{
	struct ibv_port_attr port;
	return ibv_query_port(ctx, 1, &port);
}
*/
import "C"

import (
	"fmt"
	"runtime"
	"time"
)

// fill builds the i-th request of a list: fields that differ from post to post
// are written each time.
func (b *bench) fill(i, n int, flags C.uint) {
	s, w := &b.sges[i], &b.wrs[i]
	s.addr, s.length, s.lkey = b.addr, size, b.lkey
	w.wr_id, w.sg_list, w.num_sge = 1, s, 1
	w.opcode, w.send_flags = C.IBV_WR_RDMA_WRITE, C.IBV_SEND_SIGNALED|flags
	w.next = nil
	if i+1 < n {
		w.next = &b.wrs[i+1]
	}
}

// post posts lists of n requests, each by one call of C.
func (b *bench) post(n int, flags C.uint) error {
	for done := 0; done < each; done += n {
		for i := range n {
			b.fill(i, n, flags)
		}
		if err := C.ibv_post_send(b.qp, &b.wrs[0], &b.bad[0]); err != 0 {
			return fmt.Errorf("ibv_post_send: errno %d", err)
		}
	}
	return nil
}

// pinned posts single requests that are Go's.
func (b *bench) pinned() error {
	for range each {
		sge := &C.struct_ibv_sge{addr: b.addr, length: size, lkey: b.lkey}
		wr := &C.struct_ibv_send_wr{wr_id: 1, sg_list: sge, num_sge: 1, opcode: C.IBV_WR_RDMA_WRITE, send_flags: C.IBV_SEND_SIGNALED, wr: b.wrs[0].wr}
		var pin runtime.Pinner
		pin.Pin(sge)
		var bad *C.struct_ibv_send_wr
		err := C.ibv_post_send(b.qp, wr, &bad)
		pin.Unpin()
		if err != 0 {
			return fmt.Errorf("ibv_post_send: errno %d", err)
		}
	}
	return nil
}

func (b *bench) receive(n int) error {
	for done := 0; done < each; done += n {
		for i := range n {
			s, w := &b.sges[i], &b.recvs[i]
			s.addr, s.length, s.lkey = b.addr, size, b.lkey
			w.wr_id, w.sg_list, w.num_sge, w.next = 1, s, 1, nil
			if i+1 < n {
				w.next = &b.recvs[i+1]
			}
		}
		if err := C.ibv_post_recv(b.recv, &b.recvs[0], &b.badRecv[0]); err != 0 {
			return fmt.Errorf("ibv_post_recv: errno %d", err)
		}
	}
	return nil
}

func (b *bench) empty() error {
	for range each {
		if n := C.ibv_poll_cq(b.cq, 1, &b.wcs[0]); n != 0 {
			return fmt.Errorf("ibv_poll_cq: %d where there is nothing", n)
		}
	}
	return nil
}

// poll takes the completions of a round, n at a time, and reports how many calls
// found none.
func (b *bench) poll(n int) (none int, err error) {
	for got := 0; got < each; {
		k := int(C.ibv_poll_cq(b.cq, C.int(n), &b.wcs[0]))
		if k < 0 {
			return none, fmt.Errorf("ibv_poll_cq: %d", k)
		}
		if k == 0 {
			none++
		}
		for _, wc := range b.wcs[:k] {
			if wc.status != C.IBV_WC_SUCCESS {
				return none, fmt.Errorf("a completion with status %d", wc.status)
			}
		}
		got += k
	}
	return none, nil
}

// settled has the device execute what has been posted: it serves a command after
// the doorbells before it.
func (b *bench) settled() error {
	for range 3 {
		if err := C.query_port(b.ctx); err != 0 {
			return fmt.Errorf("ibv_query_port: errno %d", err)
		}
		time.Sleep(2 * time.Millisecond)
	}
	return nil
}

// measure prints the smallest figure of each kind.
func (b *bench) measure() error {
	C.prepare(&b.wrs[0], list, b.addr+4096, b.rkey)
	best := map[string]float64{}
	note := func(name string, took time.Duration) {
		v := float64(took) / each
		if old, ok := best[name]; !ok || v < old {
			best[name] = v
		}
	}
	kinds := []struct {
		name string
		do   func() error
		send bool
	}{
		{"write", func() error { return b.post(1, 0) }, true},
		{"write.pinned", b.pinned, true},
		{"inline", func() error { return b.post(1, C.IBV_SEND_INLINE) }, true},
		{"list32", func() error { return b.post(list, 0) }, true},
		{"list32inline", func() error { return b.post(list, C.IBV_SEND_INLINE) }, true},
		{"recv", func() error { return b.receive(1) }, false},
		{"recv32", func() error { return b.receive(list) }, false},
		{"empty", b.empty, false},
	}
	for i := range rounds {
		for k, kind := range kinds {
			began := time.Now()
			err := kind.do()
			took := time.Since(began)
			if err != nil {
				return fmt.Errorf("%s: %w", kind.name, err)
			}
			note(kind.name, took)
			if !kind.send {
				continue
			}
			if err := b.settled(); err != nil {
				return err
			}
			n := 1 + (list-1)*((i+k)%2) // one or all
			began = time.Now()
			none, err := b.poll(n)
			took = time.Since(began)
			if err != nil {
				return fmt.Errorf("completions of %s: %w", kind.name, err)
			}
			if none == 0 {
				note(fmt.Sprintf("poll%d", n), took)
			}
		}
	}
	for _, name := range []string{"write", "write.pinned", "inline", "list32", "list32inline", "recv", "recv32", "poll1", "poll32", "empty"} {
		v, ok := best[name]
		if !ok {
			return fmt.Errorf("no round gave a figure for %s", name)
		}
		fmt.Printf("%s %.1f\n", name, v)
	}
	return nil
}
