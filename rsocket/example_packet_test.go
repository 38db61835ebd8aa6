package rsocket_test

import (
	"bytes"
	"errors"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/goverbs/goverbs/rsocket"
)

// Datagrams may be lost, as with UDP: a client asks again after a while.
func ExampleListenPacket() {
	server, err := rsocket.ListenPacket("udp", "192.0.2.1:7471")
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	go func() {
		b := make([]byte, server.MaxDatagram())
		for {
			n, from, err := server.ReadFrom(b)
			if err != nil {
				return // after Close
			}
			if _, err := server.WriteTo(bytes.ToUpper(b[:n]), from); err != nil {
				log.Print(err)
			}
		}
	}()

	c, err := rsocket.DialPacket("udp", "192.0.2.1:7471")
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	b := make([]byte, c.MaxDatagram())
	for {
		if _, err := c.Write([]byte("hello")); err != nil {
			log.Fatal(err)
		}
		if err := c.SetReadDeadline(time.Now().Add(time.Second)); err != nil {
			log.Fatal(err)
		}
		n, err := c.Read(b)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			continue
		}
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%s\n", b[:n])
		break
	}
	// Output: HELLO
}
