package cm_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/netip"
	"time"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/uverbs"
)

// A client sends a request and waits for the reply. It posts the receive for the reply
// in Setup.
func ExampleDial() {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	const size = 4096
	var mr *uverbs.MR // the request, then room for the reply
	conn, err := cm.Dial(ctx, "192.0.2.1:7471", &cm.Options{Setup: func(c *cm.Conn) (err error) {
		if mr, err = c.AllocMsgs(2 * size); err != nil {
			return err
		}
		return c.PostRecv(1, mr.SGE(size, size))
	}})
	if err != nil {
		log.Fatal(err) // Dial has closed the MR
	}
	defer mr.Close()
	defer conn.Close()
	n := copy(mr.Bytes(), "how much?")
	if err := conn.PostSend(2, uverbs.Signaled, mr.SGE(0, n)); err != nil {
		log.Fatal(err)
	}
	if _, err := conn.SendComp(ctx); err != nil {
		log.Fatal(err)
	}
	wc, err := conn.RecvComp(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s\n", mr.Bytes()[size:][:wc.ByteLen])
	if err := conn.Shutdown(ctx); err != nil {
		log.Print(err)
	}
}

// A server sends each message back. Setup allocates the memory of each connection and
// stores it in the id's Context.
func ExampleListen() {
	const size = 4096
	l, err := cm.Listen(":7471", &cm.ListenOptions{Options: cm.Options{Setup: func(c *cm.Conn) error {
		mr, err := c.AllocMsgs(size)
		if err != nil {
			return err
		}
		c.Own(mr) // Close of the connection closes it
		c.ID().Context = mr
		return c.PostRecv(0, mr.SGE(0, size))
	}}})
	if err != nil {
		log.Fatal(err)
	}
	defer l.Close()
	for {
		conn, err := l.Accept(context.Background())
		if errors.Is(err, cm.ErrListenerClosed) {
			return
		}
		if err != nil { // of a single connection
			log.Print(err)
			continue
		}
		go func() {
			if err := errors.Join(sendBack(conn), conn.Close()); err != nil {
				log.Print(err)
			}
		}()
	}
}

// sendBack sends each message back until the peer disconnects.
func sendBack(c *cm.Conn) error {
	ctx := context.Background()
	mr := c.ID().Context.(*uverbs.MR)
	for {
		wc, err := c.RecvComp(ctx)
		if errors.Is(err, cm.ErrDisconnected) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := c.PostSend(0, uverbs.Signaled, mr.SGE(0, int(wc.ByteLen))); err != nil {
			return err
		}
		if _, err := c.SendComp(ctx); err != nil {
			return err
		}
		if err := c.PostRecv(0, mr.SGE(0, mr.Len())); err != nil {
			return err
		}
	}
}

// A server inspects the private data of each request before it accepts. The client has
// set it in Options.PrivateData.
func ExampleListener_Request() {
	ctx := context.Background()
	l, err := cm.Listen(":7471", &cm.ListenOptions{ManualAccept: true})
	if err != nil {
		log.Fatal(err)
	}
	defer l.Close()
	for {
		req, err := l.Request(ctx)
		if err != nil {
			log.Fatal(err)
		}
		data := req.PrivateData() // padded with zeros
		if len(data) == 0 || data[0] != 2 {
			if err := req.Reject([]byte("version 2 is required")); err != nil {
				log.Print(err)
			}
			continue
		}
		conn, err := req.Accept(ctx, &cm.Options{PrivateData: []byte{2}})
		if err != nil {
			log.Print(err)
			continue
		}
		fmt.Println("connected to", conn.RemoteAddr())
		if err := conn.Close(); err != nil {
			log.Print(err)
		}
	}
}

// A server offers memory in the private data of its acceptance. Setup creates the
// memory, because it belongs to the connection's device, and SetPrivateData replaces
// Options.PrivateData.
func ExampleConn_SetPrivateData() {
	setup := func(c *cm.Conn) error {
		mr, err := c.AllocRead(1 << 20)
		if err != nil {
			return err
		}
		c.Own(mr)
		c.SetPrivateData(fmt.Appendf(nil, "%x %x ", mr.Addr(), mr.RKey()))
		return nil
	}
	err := connected(setup, func(_ context.Context, _, client *cm.Conn) error {
		var addr uint64
		var rkey uint32
		_, err := fmt.Sscanf(string(client.PrivateData()), "%x %x", &addr, &rkey)
		fmt.Println("the server offers memory:", err == nil && addr != 0)
		return err
	})
	if err != nil {
		fmt.Println(err)
	}
}

// The channel of Disconnected is closed when the connection ends, so that a program can
// wait for that and for other events.
func ExampleConn_Disconnected() {
	err := connected(nil, func(ctx context.Context, server, client *cm.Conn) error {
		if err := client.Disconnect(ctx); err != nil {
			return err
		}
		select {
		case <-server.Disconnected():
			fmt.Println("the peer has ended the connection:", errors.Is(server.Err(), cm.ErrDisconnected))
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		return nil
	})
	if err != nil {
		fmt.Println(err)
	}
}

// In a lossless RoCE network, each end marks its packets as the network expects. In this
// network, packets of DSCP 26 are lossless, and switches report congestion in the ECN
// bits. In one that goes by the priority in VLAN tags, the program sets QP.Path.SL.
func ExampleOptions_losslessNetwork() {
	const dscp, ect0 = 26, 2
	server, client := &cm.Options{QP: exampleQP}, &cm.Options{QP: exampleQP}
	server.QP.Path.TrafficClass = dscp<<2 | ect0
	client.TOS = dscp<<2 | ect0 // the kernel derives the service level from it
	err := connectedWith(server, client, func(_ context.Context, server, client *cm.Conn) error {
		for _, c := range []*cm.Conn{server, client} {
			a, err := c.QP().Query(uverbs.MaskAV)
			if err != nil {
				return err
			}
			fmt.Println("traffic class", a.AV.TrafficClass)
		}
		return nil
	})
	if err != nil {
		fmt.Println(err)
	}
}

// The error describes the operation, the object, the cause and the fix. A program
// compares it with errors.Is, and errors.As returns the parts.
func ExampleError() {
	_, err := cm.Dial(context.Background(), "192.0.2.1", nil)
	fmt.Println(err)
	fmt.Println(errors.Is(err, uverbs.ErrInvalid))
	var e *cm.Error
	if errors.As(err, &e) {
		fmt.Println(e.Op, "/", e.Object, "/", e.Detail)
	}
	// Output:
	// cm: dial 192.0.2.1: want host:port or :port (EINVAL)
	// true
	// dial / 192.0.2.1 / want host:port or :port
}

// Dial reports why the peer has not accepted.
func ExampleDial_errors() {
	conn, err := cm.Dial(context.Background(), "192.0.2.1:7471", nil)
	var e *cm.Error
	switch {
	case err == nil:
		defer conn.Close()
	case errors.Is(err, cm.ErrRejected) && errors.As(err, &e):
		log.Printf("%v: %s", e.Reason, e.PrivateData)
	case errors.Is(err, cm.ErrUnreachable), errors.Is(err, cm.ErrTimeout):
		log.Print("the machine does not reply, try again: ", err)
	case errors.Is(err, uverbs.ErrNoDevice):
		log.Print("no RDMA device leads there: ", err)
	default:
		log.Print(err)
	}
}

// An event that reports a failure has an error.
func ExampleEvent_Err() {
	e := cm.Event{Type: cm.EventRejected, Status: int(cm.RejectConsumer), PrivateData: []byte("busy")}
	var err *cm.Error
	if errors.As(e.Err(), &err) {
		fmt.Println(errors.Is(err, cm.ErrRejected), err.Reason == cm.RejectConsumer)
		fmt.Printf("%s\n", err.PrivateData)
	}
	// Output:
	// true true
	// busy
}

func ExampleGetAddrInfo() {
	infos, err := cm.GetAddrInfo(context.Background(), "192.0.2.1", "7471", &cm.AddrInfo{PortSpace: cm.PSUDP})
	if err != nil {
		log.Fatal(err)
	}
	for _, info := range infos {
		fmt.Println(info)
	}
	// Output: UDP 192.0.2.1:7471
}

// A member of a multicast group sends a datagram to the group. The device may loop it
// back to the member.
func ExampleJoinMulticast() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	ip := netip.MustParseAddr(exampleIP)
	g, err := cm.JoinMulticast(ctx, "239.1.2.3", &cm.Options{LocalAddr: netip.AddrPortFrom(ip, 0)})
	if err != nil {
		log.Fatal(err)
	}
	defer g.Close()
	const size = 256
	mr, err := g.AllocMsgs(size + uverbs.GRHLen + size)
	if err != nil {
		log.Fatal(err)
	}
	defer mr.Close()
	if err := g.PostRecv(1, mr.SGE(size, uverbs.GRHLen+size)); err != nil {
		log.Fatal(err)
	}
	n := copy(mr.Bytes(), "to all members")
	if err := g.PostSend(2, uverbs.Signaled, mr.SGE(0, n)); err != nil {
		log.Fatal(err)
	}
	if _, err := g.SendComp(ctx); err != nil {
		log.Fatal(err)
	}
	wc, err := g.RecvComp(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s\n", mr.Bytes()[size:][uverbs.GRHLen:wc.ByteLen])
}

// A client sends a datagram to a service of PSUDP: Connect looks up the QP of the
// service, and the event has its address.
func ExampleID_PostUDSend() {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	id, err := cm.NewID(cm.PSUDP)
	if err != nil {
		log.Fatal(err)
	}
	defer id.Close()
	service := netip.MustParseAddrPort("192.0.2.1:7471")
	if err := id.ResolveAddr(ctx, netip.AddrPort{}, service, 0); err != nil {
		log.Fatal(err)
	}
	if err := id.ResolveRoute(ctx, 0); err != nil {
		log.Fatal(err)
	}
	if err := id.CreateQP(nil, uverbs.QPConfig{MaxSendWR: 16, MaxRecvWR: 16}); err != nil {
		log.Fatal(err)
	}
	if err := id.Connect(ctx, nil); err != nil {
		log.Fatal(err)
	}
	to := id.Event().UD
	ah, err := id.PD().CreateAH(to.AH)
	if err != nil {
		log.Fatal(err)
	}
	defer ah.Close()
	mr, err := id.AllocMsgs(256)
	if err != nil {
		log.Fatal(err)
	}
	defer mr.Close()
	n := copy(mr.Bytes(), "a datagram")
	if err := id.PostUDSend(1, uverbs.Signaled, ah, to.QPN, mr.SGE(0, n)); err != nil {
		log.Fatal(err)
	}
	if _, err := id.SendComp(ctx); err != nil {
		log.Fatal(err)
	}
}

// A service of PSUDP has one QP for all clients: Accept sends its number to each client.
func ExampleSyncID_GetRequest() {
	ctx := context.Background()
	l, err := cm.NewID(cm.PSUDP)
	if err != nil {
		log.Fatal(err)
	}
	defer l.Close()
	if err := l.Bind(netip.MustParseAddrPort("192.0.2.1:7471")); err != nil {
		log.Fatal(err)
	}
	if err := l.CreateQP(nil, uverbs.QPConfig{MaxSendWR: 16, MaxRecvWR: 16}); err != nil {
		log.Fatal(err)
	}
	if err := l.Listen(0); err != nil {
		log.Fatal(err)
	}
	for {
		req, err := l.GetRequest(ctx)
		if err != nil {
			log.Fatal(err)
		}
		if err := errors.Join(req.Accept(ctx, &cm.ConnParam{QPN: l.QP().QPN()}), req.Close()); err != nil {
			log.Print(err)
		}
	}
}

// One goroutine serves many ids of an event channel.
func ExampleEventChannel() {
	ch, err := cm.NewEventChannel()
	if err != nil {
		log.Fatal(err)
	}
	defer ch.Close()
	id, err := ch.CreateID(cm.PSTCP)
	if err != nil {
		log.Fatal(err)
	}
	defer id.Close()
	if err := id.ResolveAddr(netip.AddrPort{}, netip.MustParseAddrPort("192.0.2.1:7471"), 0); err != nil {
		log.Fatal(err)
	}
	for {
		e, err := ch.Next(context.Background())
		if err != nil {
			log.Fatal(err)
		}
		if err := e.Err(); err != nil {
			log.Print(err)
			return
		}
		switch e.Type {
		case cm.EventAddrResolved:
			err = e.ID.ResolveRoute(0)
		case cm.EventRouteResolved:
			if err = e.ID.CreateQP(nil, uverbs.QPConfig{MaxSendWR: 16, MaxRecvWR: 16}); err == nil {
				err = e.ID.Connect(nil)
			}
		case cm.EventEstablished:
			fmt.Println("connected to", e.ID.RemoteAddr())
		}
		if err != nil {
			log.Print(err)
			return
		}
	}
}
