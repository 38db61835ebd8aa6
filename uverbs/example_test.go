package uverbs_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net"
	"net/netip"
	"time"

	"github.com/goverbs/goverbs/uverbs"
)

// Open with an empty name opens the first device with an active port. The program must import a
// provider, such as provider/all. Close of the Context closes everything that was created on it.
func ExampleOpen() {
	dev, err := uverbs.Open("")
	if err != nil {
		log.Fatal(err) // the error says what is missing and how to provide it
	}
	defer dev.Close()
	port, err := dev.QueryPort(1)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(dev.Name(), port.State, port.ActiveMTU)
}

// Devices lists the devices without opening them.
func ExampleDevices() {
	devices, err := uverbs.Devices()
	if err != nil {
		log.Fatal(err)
	}
	for _, d := range devices {
		fmt.Println(d.Name, d.Driver(), d.NodeGUID, d.Node)
	}
}

// A connection needs a PD, a CQ that is large enough for all requests of its QPs, and an RC QP.
func ExamplePD_CreateQP() {
	var dev *uverbs.Context
	pd, err := dev.AllocPD()
	if err != nil {
		log.Fatal(err)
	}
	const sends, receives = 16, 64
	cq, err := dev.CreateCQ(uverbs.CQConfig{Entries: sends + receives})
	if err != nil {
		log.Fatal(err)
	}
	qp, err := pd.CreateQP(uverbs.QPConfig{
		Type:      uverbs.RC,
		SendCQ:    cq, // also the CQ of receives
		MaxSendWR: sends,
		MaxRecvWR: receives,
		Access:    uverbs.RemoteRead | uverbs.RemoteWrite, // what the peer may do, where an MR allows it too
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("QPN %#x\n", qp.QPN())
}

// RegMR registers memory of the program, which may be on the Go heap. The device may write to it
// only with LocalWrite.
func ExamplePD_RegMR() {
	var pd *uverbs.PD
	buf := make([]byte, 1<<20)
	mr, err := pd.RegMR(buf, uverbs.LocalWrite)
	if errors.Is(err, uverbs.ErrMemlock) {
		log.Fatal("raise the limit on locked memory: ", err)
	} else if err != nil {
		log.Fatal(err)
	}
	defer mr.Close()
	sge := mr.SGE(4096, 100) // 100 bytes at offset 4096, for a work request
	fmt.Println(sge.Length)
}

// Alloc allocates memory outside the Go heap and registers it. Peers that know its address and
// key may read and write it.
func ExamplePD_Alloc() {
	var pd *uverbs.PD
	mr, err := pd.Alloc(1<<30, uverbs.LocalWrite|uverbs.RemoteRead|uverbs.RemoteWrite)
	if err != nil {
		log.Fatal(err)
	}
	defer mr.Close()
	copy(mr.Bytes(), "hello")
	fmt.Printf("tell the peer: address %#x, key %#x\n", mr.Addr(), mr.RKey())
}

// Handshake connects two RC QPs over a TCP connection between their programs. A receive is
// posted before the peer may send.
func ExampleQP_Handshake() {
	var (
		qp *uverbs.QP
		mr *uverbs.MR
	)
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	conn, err := net.Dial("tcp", "192.0.2.1:7471") // the peer calls Accept
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()
	if err := qp.Init(); err != nil {
		log.Fatal(err)
	}
	if _, err := qp.PostRecv(uverbs.RecvWR{WRID: 1, SGL: []uverbs.SGE{mr.SGE(0, 4096)}}); err != nil {
		log.Fatal(err)
	}
	if err := qp.Handshake(ctx, conn); err != nil {
		log.Fatal(err)
	}
}

// Programs that have another way to exchange a line of text call Endpoint and Connect.
func ExampleQP_Connect() {
	var qp *uverbs.QP
	local, err := qp.Endpoint()
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(local) // send this text to the peer
	var text string    // the peer's text
	var remote uverbs.Endpoint
	if err := remote.UnmarshalText([]byte(text)); err != nil {
		log.Fatal(err)
	}
	if err := qp.Connect(remote); err != nil {
		log.Fatal(err)
	}
}

// A SEND transfers memory to a receive that the peer has posted. The memory may be changed again
// when the request has completed.
func ExampleQP_PostSend() {
	var (
		qp *uverbs.QP
		mr *uverbs.MR
	)
	ctx := context.Background()
	n := copy(mr.Bytes(), "hello")
	if _, err := qp.PostSend(uverbs.SendWR{
		WRID:   1,
		Opcode: uverbs.OpSend,
		Flags:  uverbs.Signaled, // so that there is a completion
		SGL:    []uverbs.SGE{mr.SGE(0, n)},
	}); err != nil {
		log.Fatal(err)
	}
	var wc [1]uverbs.WC
	if _, err := qp.SendCQ().PollWait(ctx, wc[:]); err != nil {
		log.Fatal(err)
	}
	if err := wc[0].Err(); err != nil {
		log.Fatal(err)
	}
}

// A WRITE transfers memory to an address of the peer, which takes no part in it. The peer has
// sent the address and the key of its MR. Up to QPConfig.MaxInline bytes need no registration.
func ExampleQP_PostSend_write() {
	var (
		qp   *uverbs.QP
		addr uint64
		rkey uint32
	)
	if _, err := qp.PostSend(uverbs.SendWR{
		Opcode:     uverbs.OpWrite,
		Flags:      uverbs.Signaled,
		Inline:     []byte("hello"),
		RemoteAddr: addr,
		RKey:       rkey,
	}); err != nil {
		log.Fatal(err)
	}
}

// A READ transfers memory of the peer to local memory, which needs LocalWrite. The data is there
// when the request has completed.
func ExampleQP_PostSend_read() {
	var (
		qp   *uverbs.QP
		mr   *uverbs.MR
		addr uint64
		rkey uint32
	)
	if _, err := qp.PostSend(uverbs.SendWR{
		Opcode:     uverbs.OpRead,
		Flags:      uverbs.Signaled,
		SGL:        []uverbs.SGE{mr.SGE(0, 4096)},
		RemoteAddr: addr,
		RKey:       rkey,
	}); err != nil {
		log.Fatal(err)
	}
}

// Each message needs a receive, which is posted before the message arrives. WRID identifies the
// buffer in the completion.
func ExampleQP_PostRecv() {
	var (
		qp *uverbs.QP
		mr *uverbs.MR
	)
	const size, count = 4096, 64
	for i := range count {
		_, err := qp.PostRecv(uverbs.RecvWR{WRID: uint64(i), SGL: []uverbs.SGE{mr.SGE(i*size, size)}})
		if err != nil {
			log.Fatal(err)
		}
	}
	ctx := context.Background()
	var wcs [16]uverbs.WC
	for {
		n, err := qp.RecvCQ().PollWait(ctx, wcs[:])
		if err != nil {
			log.Fatal(err)
		}
		for _, wc := range wcs[:n] {
			if err := wc.Err(); err != nil {
				log.Fatal(err)
			}
			buf := mr.Bytes()[int(wc.WRID)*size:][:size]
			fmt.Printf("%s\n", buf[:wc.ByteLen])
			_, err := qp.PostRecv(uverbs.RecvWR{WRID: wc.WRID, SGL: []uverbs.SGE{mr.SGE(int(wc.WRID)*size, size)}})
			if err != nil {
				log.Fatal(err)
			}
		}
	}
}

// Poll does not wait, and returns 0 if there is no completion. Wait occupies no thread, and ends
// with its context. PollWait is both in one call.
func ExampleCQ_Wait() {
	var cq *uverbs.CQ
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	var wcs [16]uverbs.WC
	for {
		n, err := cq.Poll(wcs[:])
		if err != nil {
			log.Fatal(err)
		}
		for _, wc := range wcs[:n] {
			fmt.Println(wc.WRID, wc.Status)
		}
		if n == len(wcs) {
			continue // there may be more
		}
		err = cq.Wait(ctx)
		switch {
		case errors.Is(err, context.DeadlineExceeded), errors.Is(err, uverbs.ErrClosed):
			return
		case err != nil:
			log.Fatal(err)
		}
	}
}

// A batch writes several requests to the queue and rings the doorbell once. Only the last of
// these is signaled: its completion also reports the end of the others.
func ExampleQP_StartSend() {
	var (
		qp   *uverbs.QP
		mr   *uverbs.MR
		addr uint64
		rkey uint32
	)
	b := qp.StartSend()
	defer b.Abort() // does nothing after Submit
	for i := range 8 {
		b.WriteSGE(uint64(i), 0, addr+uint64(i)*4096, rkey, mr.SGE(i*4096, 4096))
	}
	b.SendInline(8, uverbs.Signaled, []byte("all written"))
	if err := b.Submit(); err != nil {
		log.Fatal(err)
	}
}

// A UD QP sends to any number of peers. Each message names an address handle, and the QPN and
// Q_Key of the peer.
func ExampleQP_Ready() {
	var (
		pd     *uverbs.PD
		cq     *uverbs.CQ
		remote uverbs.Endpoint // of the peer
	)
	const qkey = 0x11111111
	qp, err := pd.CreateQP(uverbs.QPConfig{Type: uverbs.UD, SendCQ: cq, MaxSendWR: 16, MaxRecvWR: 64,
		MaxInline: 64, QKey: qkey})
	if err != nil {
		log.Fatal(err)
	}
	if err := qp.Ready(); err != nil {
		log.Fatal(err)
	}
	attr, err := qp.AHAttr(remote)
	if err != nil {
		log.Fatal(err)
	}
	ah, err := pd.CreateAH(attr)
	if err != nil {
		log.Fatal(err)
	}
	if _, err := qp.PostSend(uverbs.SendWR{Opcode: uverbs.OpSend, Flags: uverbs.Signaled,
		Inline: []byte("hello"), AH: ah, QPN: remote.QPN, QKey: qkey}); err != nil {
		log.Fatal(err)
	}
}

// A server replies to the sender of a datagram. The first GRHLen bytes of the receive identify
// the sender.
func ExamplePD_CreateAHFromWC() {
	var (
		qp *uverbs.QP // UD
		wc uverbs.WC  // of a receive
		mr *uverbs.MR // of the receive buffers, at WRID*size
	)
	const size, qkey = uverbs.GRHLen + 4096, 0x11111111
	buf := mr.Bytes()[wc.WRID*size:][:size]
	ah, err := qp.PD().CreateAHFromWC(1, &wc, buf[:uverbs.GRHLen])
	if err != nil {
		log.Fatal(err)
	}
	// Keep ah for the next datagram from the same sender. Close it when the requests that use it
	// have completed.
	if _, err = qp.PostSend(uverbs.SendWR{Opcode: uverbs.OpSend, AH: ah, QPN: wc.SrcQP, QKey: qkey,
		Inline: []byte("thanks")}); err != nil {
		log.Fatal(err)
	}
}

// This sends the same datagram to many peers with one doorbell.
func ExampleSendBatch_UDAddr() {
	var (
		qp    *uverbs.QP
		mr    *uverbs.MR
		peers []struct {
			ah        *uverbs.AH
			qpn, qkey uint32
		}
	)
	b := qp.StartSend()
	for i, p := range peers {
		b.SendSGE(uint64(i), uverbs.Signaled, mr.SGE(0, 100))
		b.UDAddr(p.ah, p.qpn, p.qkey)
	}
	if err := b.Submit(); err != nil {
		log.Fatal(err)
	}
}

// On RoCE, a multicast group is identified by its IP address.
func ExampleQP_AttachMcast() {
	var qp *uverbs.QP // UD
	group := uverbs.GIDFromAddr(netip.MustParseAddr("239.7.7.7"))
	if err := qp.AttachMcast(group, 0); err != nil {
		log.Fatal(err)
	}
}

// Many connections share 1000 receives. The program posts more of them when an event reports
// that fewer than 100 are left.
func ExamplePD_CreateSRQ() {
	var (
		dev *uverbs.Context
		pd  *uverbs.PD
		cq  *uverbs.CQ
		mr  *uverbs.MR
	)
	const size, receives, low = 4096, 1000, 100
	srq, err := pd.CreateSRQ(uverbs.SRQConfig{MaxWR: receives})
	if err != nil {
		log.Fatal(err)
	}
	for i := range receives {
		if _, err := srq.PostRecv(uverbs.RecvWR{WRID: uint64(i), SGL: []uverbs.SGE{mr.SGE(i*size, size)}}); err != nil {
			log.Fatal(err)
		}
	}
	if err := srq.Modify(uverbs.SRQAttr{Limit: low}, uverbs.SRQMaskLimit); err != nil {
		log.Fatal(err)
	}
	for range 64 {
		_, err := pd.CreateQP(uverbs.QPConfig{Type: uverbs.RC, SendCQ: cq, SRQ: srq, MaxSendWR: 16})
		if err != nil {
			log.Fatal(err)
		}
	}
	for {
		e, err := dev.NextEvent(context.Background())
		if err != nil {
			log.Fatal(err)
		}
		if e.Type == uverbs.EventSRQLimitReached {
			fmt.Println("post receives, and set the limit again")
		}
	}
}

// errors.Is matches the errors of this package, errnos, and the errors of package os that stand
// for them. An Error names the operation, the object, the cause and the fix.
func ExampleError() {
	_, err := uverbs.Open("rxe0")
	switch {
	case errors.Is(err, uverbs.ErrNoDevice):
		fmt.Println("there is no such device")
	case errors.Is(err, uverbs.ErrNetns):
		fmt.Println("the device belongs to another network namespace")
	}
	var e *uverbs.Error
	if errors.As(err, &e) {
		fmt.Println(e.Op, e.Object, e.Errno, e.Detail)
	}
}

// The error of a post tells what the program can do. n is the index of the refused request.
func ExampleQP_PostSend_errors() {
	var (
		qp *uverbs.QP
		wr uverbs.SendWR
	)
	n, err := qp.PostSend(wr)
	switch {
	case errors.Is(err, uverbs.ErrQueueFull):
		fmt.Println("poll completions first")
	case errors.Is(err, uverbs.ErrQPType):
		fmt.Println("use a QP of another type")
	case errors.Is(err, uverbs.ErrNotSupported):
		fmt.Println("use another operation on this device")
	case errors.Is(err, uverbs.ErrDeviceGone):
		fmt.Println("open the device again when it is back")
	case err != nil:
		log.Fatalf("request %d: %v", n, err)
	}
}

// The status of a completion is an error. After one that is not WCSuccess the QP is in state
// ERR: the other requests are flushed, and Modify to RESET makes the QP usable again.
func ExampleWC_Err() {
	var (
		qp *uverbs.QP
		wc uverbs.WC
	)
	switch err := wc.Err(); {
	case err == nil:
	case errors.Is(err, uverbs.WCWRFlushErr):
		// Another request failed first.
	case errors.Is(err, uverbs.WCRetryExcErr):
		fmt.Println("the peer does not reply")
		fallthrough
	default:
		if err := qp.Modify(uverbs.QPAttr{State: uverbs.StateReset}, uverbs.MaskState); err != nil {
			log.Fatal(err)
		}
	}
}
