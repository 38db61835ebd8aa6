package main

/*
#include <infiniband/verbs.h>

static void set_remote(struct ibv_send_wr *wr, uint64_t addr, uint32_t rkey)
{
	wr->wr.rdma.remote_addr = addr;
	wr->wr.rdma.rkey = rkey;
}

// cgo cannot access union members, so C sets them, once for each request.
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

// requests builds all requests.
func (b *bench) requests() {
	b.sges = inC[C.struct_ibv_sge](list)
	for i := range b.sges {
		b.sges[i].addr, b.sges[i].length, b.sges[i].lkey = b.addr, size, b.lkey
	}
	for i, flags := range []C.uint{0, C.IBV_SEND_INLINE} {
		b.one[i], b.many[i] = b.sends(1, flags), b.sends(list, flags)
	}
	b.recv1, b.recvs = b.receives(1), b.receives(list)
}

// sends returns a list of n requests.
func (b *bench) sends(n int, flags C.uint) []C.struct_ibv_send_wr {
	wrs := inC[C.struct_ibv_send_wr](n)
	for i := range wrs {
		w := &wrs[i]
		w.wr_id, w.sg_list, w.num_sge = 1, &b.sges[i], 1
		w.opcode, w.send_flags = C.IBV_WR_RDMA_WRITE, C.IBV_SEND_SIGNALED|flags
		if i+1 < n {
			w.next = &wrs[i+1]
		}
	}
	C.prepare(&wrs[0], C.int(n), b.addr+4096, b.rkey)
	return wrs
}

func (b *bench) receives(n int) []C.struct_ibv_recv_wr {
	wrs := inC[C.struct_ibv_recv_wr](n)
	for i := range wrs {
		wrs[i].wr_id, wrs[i].sg_list, wrs[i].num_sge = 1, &b.sges[i], 1
		if i+1 < n {
			wrs[i].next = &wrs[i+1]
		}
	}
	return wrs
}

// post posts lists, each with one C call.
func (b *bench) post(wrs []C.struct_ibv_send_wr) error {
	for done := 0; done < each; done += len(wrs) {
		if err := C.ibv_post_send(b.qp, &wrs[0], &b.bad[0]); err != 0 {
			return fmt.Errorf("ibv_post_send: errno %d", err)
		}
	}
	return nil
}

// pinned posts single requests in Go memory.
func (b *bench) pinned() error {
	for range each {
		sge := &C.struct_ibv_sge{addr: b.addr, length: size, lkey: b.lkey}
		wr := &C.struct_ibv_send_wr{wr_id: 1, sg_list: sge, num_sge: 1, opcode: C.IBV_WR_RDMA_WRITE,
			send_flags: C.IBV_SEND_SIGNALED, wr: b.one[0][0].wr}
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

func (b *bench) receive(wrs []C.struct_ibv_recv_wr) error {
	for done := 0; done < each; done += len(wrs) {
		if err := C.ibv_post_recv(b.recv, &wrs[0], &b.badRecv[0]); err != 0 {
			return fmt.Errorf("ibv_post_recv: errno %d", err)
		}
	}
	return nil
}

func (b *bench) empty() error {
	for range each {
		if n := C.ibv_poll_cq(b.cq, 1, &b.wcs[0]); n != 0 {
			return fmt.Errorf("ibv_poll_cq: %d completions of an empty queue", n)
		}
	}
	return nil
}

// poll polls the completions of a round, n at a time, and returns the number of
// calls that found none.
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

// waitIdle waits until the device has executed all requests: it executes a command
// only after earlier doorbells.
func (b *bench) waitIdle() error {
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
	best := map[string]float64{}
	clock := time.Hour
	for range 10 {
		began := time.Now()
		clock = min(clock, time.Since(began))
	}
	note := func(name string, took time.Duration) {
		v := float64(took-clock) / each
		if old, ok := best[name]; !ok || v < old {
			best[name] = v
		}
	}
	kinds := []struct {
		name string
		do   func() error
		send bool
	}{
		{"write", func() error { return b.post(b.one[0]) }, true},
		{"write.pinned", b.pinned, true},
		{"inline", func() error { return b.post(b.one[1]) }, true},
		{"list32", func() error { return b.post(b.many[0]) }, true},
		{"list32inline", func() error { return b.post(b.many[1]) }, true},
		{"recv", func() error { return b.receive(b.recv1) }, false},
		{"recv32", func() error { return b.receive(b.recvs) }, false},
		{"empty", b.empty, false},
	}
	for i := range rounds {
		for k := range kinds {
			if i%2 == 1 { // so that no kind is always the first to touch a page of a ring
				k = len(kinds) - 1 - k
			}
			kind := kinds[k]
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
			if err := b.waitIdle(); err != nil {
				return err
			}
			n := 1 + (list-1)*((i/2+k)%2) // one or all
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
	for _, name := range []string{"write", "write.pinned", "inline", "list32", "list32inline", "recv", "recv32", "poll1",
		"poll32", "empty"} {
		v, ok := best[name]
		if !ok {
			return fmt.Errorf("no valid round of %s", name)
		}
		fmt.Printf("%s %.1f\n", name, v)
	}
	return nil
}
