// Play runs the steps of a script on an RDMA device. The C program
// ../testdata/play.c does the same with libibverbs.
//
//	play script device gid-index
//
// A step is a line: a verb and numbers. Objects are numbered by the script,
// memory is an offset in the one MR, DATA is
//
//	inline-offset inline-length n [offset length]...
//
// where either the inline length or n is 0, and SGES is DATA from n on. Queue
// pairs with flag 2 are for the extended posting calls of C; those with flag 1
// signal all requests; for those with flag 4 nothing is printed; those with flag 8 are out of order;
// with flag 16 no short data arrives in completions, with flag 32 all does; with flag 64 they send TSOs.
//
//	cq N entries | srq N wrs sges | mw N type | ah N
//	qp N type cq srq|-1 send-wrs recv-wrs send-sges recv-sges inline flags
//	xrcd | xsrq N cq wrs sges | target N
//	domain          create later queue pairs on a thread domain's PD
//	dci N cq send-wrs send-sges inline flags streams | dct N cq srq
//	dcready N       a DCI to RTS
//	dm N size       device memory and an MR of it
//	dmput N offset from length | dmget N offset to length
//	dmop N op       store 1 to the first byte at the address of operation 0, or load that of operation 1
//	raw N           a raw packet QP to RTS
//	connect N peer | ready N | reset N | error N
//	begin QP 0: list, 1: builder, 2: builder in C, list in Go
//	wr opcode flags id offset window|-1 imm add|compare swap DATA
//	xwr SRQ opcode ... as wr, for an XRC SRQ
//	dcwr AH DCT stream opcode ... as wr, of a DCI
//	dmwr N local opcode flags id remote-offset local-offset length
//	                a READ, a WRITE or a FETCH_ADD of 5: device memory is local (1) or remote (0), the MR is the other
//	datagram opcode flags id imm AH QP DATA
//	tso opcode flags id offset length mss SGES
//	                offset and length of the headers
//	store offset n byte...
//	                to the MR
//	invalidate opcode flags id window DATA
//	bind opcode flags id window offset length access
//	post
//	bind1 QP window id offset length access
//	recv QP id SGES | srqrecv SRQ id SGES
//	poll CQ n | arm CQ solicited | event CQ | resize CQ entries
//	limit SRQ n
//	sync QP         a command, after which the device has processed all doorbells
//	sum             print a checksum of the memory
//	uncq N | unsrq N | unqp N | unah N | unmw N | undm N | unxrcd | undomain
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/goverbs/goverbs/uverbs"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "play:", err)
		os.Exit(1)
	}
}

// memory is the size of the MR.
const memory = 1 << 16

// limit bounds the wait for completions.
const limit = 30 * time.Second

// A player has the objects of a script.
type player struct {
	args   []int // numbers of the step that were not read yet
	argErr error // error of reading them

	dev  *uverbs.Context
	pd   *uverbs.PD // for new queue pairs
	base *uverbs.PD // the PD of the device or of the thread domain's parent
	td   *uverbs.TD
	xrcd *uverbs.XRCD
	mr   *uverbs.MR
	port *uverbs.PortAttr
	gid  *uverbs.GIDEntry

	cqs  [16]*uverbs.CQ
	srqs [16]*uverbs.SRQ
	qps  [32]*uverbs.QP
	ahs  [16]*uverbs.AH
	mws  [16]*uverbs.MW
	keys [16]uint32 // of windows
	dms  [4]deviceMemory

	kinds map[**uverbs.QP]uverbs.QPType

	batchQP *uverbs.QP // set by begin
	builder bool
	batch   []uverbs.SendWR
}

func run(args []string) (err error) {
	if len(args) != 3 {
		return errors.New("usage: play script device gid-index")
	}
	script, err := os.ReadFile(args[0])
	if err != nil {
		return err
	}
	index, err := strconv.Atoi(args[2])
	if err != nil {
		return err
	}
	p := &player{kinds: map[**uverbs.QP]uverbs.QPType{}}
	if err := p.open(args[1], index); err != nil {
		return err
	}
	n := 0
	for line := range bytes.Lines(script) {
		n++
		if err := p.step(string(line)); err != nil {
			return errors.Join(fmt.Errorf("step %d, %s: %w", n, strings.TrimSpace(string(line)), err), p.dev.Close())
		}
	}
	return errors.Join(p.mr.Close(), p.pd.Close(), p.dev.Close())
}

func (p *player) open(name string, gidIndex int) (err error) {
	if p.dev, err = uverbs.Open(name); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.dev.Close())
		}
	}()
	if p.pd, err = p.dev.AllocPD(); err != nil {
		return err
	}
	p.base = p.pd
	p.mr, err = p.pd.Alloc(memory, uverbs.LocalWrite|uverbs.RemoteWrite|uverbs.RemoteRead|uverbs.RemoteAtomic|
		uverbs.MWBindAccess)
	if err != nil {
		return err
	}
	for i := range p.mr.Bytes() {
		p.mr.Bytes()[i] = byte(i*7 + i>>8)
	}
	if p.port, err = p.dev.QueryPort(1); err != nil {
		return err
	}
	p.gid, err = p.dev.QueryGID(1, gidIndex)
	return err
}

// nextArg reads the next number of the step.
func (p *player) nextArg() int {
	if len(p.args) == 0 {
		p.argErr = errors.New("too few numbers")
		return 0
	}
	n := p.args[0]
	p.args = p.args[1:]
	return n
}

// one reads a number and returns that element of all.
func one[T any](p *player, all []T) *T {
	i := p.nextArg()
	if i < 0 || i >= len(all) {
		p.argErr = fmt.Errorf("no element %d of %T", i, all)
		return new(T)
	}
	return &all[i]
}

func (p *player) step(line string) error {
	words := strings.Fields(line)
	verb, ok := verbs[words[0]]
	if !ok {
		return errors.New("unknown verb")
	}
	p.args, p.argErr = nil, nil
	for _, w := range words[1:] {
		n, err := strconv.ParseInt(w, 0, 64)
		if err != nil {
			return err
		}
		p.args = append(p.args, int(n))
	}
	err := verb(p)
	if err == nil {
		err = p.argErr
	}
	if err == nil && len(p.args) > 0 {
		err = errors.New("too many numbers")
	}
	return err
}

var verbs = map[string]func(*player) error{
	"cq": (*player).cq, "srq": (*player).srq, "mw": (*player).mw, "qp": (*player).qp, "ah": (*player).ah,
	"connect": (*player).connect, "ready": (*player).ready,
	"reset": func(p *player) error { return p.state(uverbs.StateReset) },
	"error": func(p *player) error { return p.state(uverbs.StateErr) },
	"xrcd":  (*player).openXRCD, "xsrq": (*player).xsrq, "target": (*player).target, "raw": (*player).raw,
	"unxrcd": func(p *player) error { return p.xrcd.Close() },
	"domain": (*player).domain, "undomain": (*player).closeDomain, "xwr": (*player).xwr,
	"dci": (*player).dci, "dct": (*player).dct, "dcready": (*player).dcReady, "dcwr": (*player).dcwr,
	"dm": (*player).dm, "dmput": (*player).dmPut, "dmget": (*player).dmGet, "dmop": (*player).dmOp,
	"dmwr": (*player).dmwr, "undm": func(p *player) error { return one(p, p.dms[:]).close() },
	"begin": (*player).begin, "wr": (*player).wr, "datagram": (*player).datagram, "invalidate": (*player).invalidate,
	"tso": (*player).tso, "store": (*player).store,
	"bind": (*player).bind, "bind1": (*player).bind1, "post": (*player).post,
	"recv": (*player).recv, "srqrecv": (*player).srqRecv,
	"poll": (*player).poll, "event": (*player).event, "sum": (*player).sum,
	"arm":    func(p *player) error { q := one(p, p.cqs[:]); return (*q).Arm(p.nextArg() != 0) },
	"resize": func(p *player) error { q := one(p, p.cqs[:]); return (*q).Resize(p.nextArg()) },
	"limit": func(p *player) error {
		s := one(p, p.srqs[:])
		return (*s).Modify(uverbs.SRQAttr{Limit: p.nextArg()}, uverbs.SRQMaskLimit)
	},
	"sync":  func(p *player) error { _, err := (*one(p, p.qps[:])).Query(uverbs.MaskState); return err },
	"uncq":  func(p *player) error { return (*one(p, p.cqs[:])).Close() },
	"unsrq": func(p *player) error { return (*one(p, p.srqs[:])).Close() },
	"unqp":  func(p *player) error { return (*one(p, p.qps[:])).Close() },
	"unah":  func(p *player) error { return (*one(p, p.ahs[:])).Close() },
	"unmw":  func(p *player) error { return (*one(p, p.mws[:])).Close() },
}

// poll polls n completions, and checks that there are no more.
func (p *player) poll() error {
	q, want := *one(p, p.cqs[:]), p.nextArg()
	var wcs [8]uverbs.WC
	for until := time.Now().Add(limit); want > 0; {
		n, err := q.Poll(wcs[:min(want, len(wcs))])
		if err != nil {
			return err
		}
		for i := range wcs[:n] {
			p.print(&wcs[i])
		}
		if want -= n; time.Now().After(until) {
			return fmt.Errorf("%d completions are missing", want)
		}
	}
	n, err := q.Poll(wcs[:1])
	if err == nil && n > 0 {
		err = fmt.Errorf("unexpected completion: %+v", wcs[0])
	}
	return err
}

// print prints the fields of a completion that C also guarantees.
func (p *player) print(w *uverbs.WC) {
	number := -1
	for i, q := range p.qps {
		if q != nil && q.QPN() == w.QPNum {
			number = i
			break
		}
	}
	fmt.Printf("wc %d qp %d status %d", w.WRID, number, w.Status)
	if w.Status != uverbs.WCSuccess {
		fmt.Printf(" vendor %x\n", w.VendorErr)
		return
	}
	recv := w.Opcode&uverbs.WCRecv != 0
	fmt.Printf(" opcode %d", w.Opcode)
	if recv || w.Opcode == uverbs.WCRead || w.Opcode == uverbs.WCCompareSwap || w.Opcode == uverbs.WCFetchAdd {
		fmt.Printf(" length %d", w.ByteLen)
	}
	if recv && w.Flags&uverbs.WCWithImm != 0 {
		fmt.Printf(" imm %x", w.Imm)
	}
	if w.Flags&uverbs.WCGRH != 0 {
		fmt.Print(" grh")
	}
	if w.Flags&uverbs.WCWithInv != 0 {
		fmt.Print(" inv")
	}
	fmt.Println()
}

func (p *player) event() error {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	return (*one(p, p.cqs[:])).WaitEvent(ctx)
}

func (p *player) sum() error {
	h := fnv.New32a()
	h.Write(p.mr.Bytes())
	fmt.Printf("sum %08x\n", h.Sum32())
	return nil
}
