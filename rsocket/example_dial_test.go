package rsocket_test

import (
	"errors"
	"fmt"
	"io"
	"log"
	"time"

	"github.com/goverbs/goverbs/rsocket"
)

// A server sends back what it reads. CloseWrite ends one direction, and Close waits until the peer has received
// everything.
func ExampleDial() {
	l, err := rsocket.Listen("tcp", ":7471")
	if err != nil {
		log.Fatal(err)
	}
	served := make(chan error, 1)
	go func() {
		c, err := l.AcceptConn()
		if err == nil {
			_, err = io.Copy(c, c) // until the client has called CloseWrite
			err = errors.Join(err, c.Close())
		}
		served <- errors.Join(err, l.Close())
	}()

	c, err := rsocket.Dial("tcp", "192.0.2.1:7471")
	if err != nil {
		log.Fatal(err)
	}
	if err := c.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		log.Fatal(err)
	}
	if _, err := io.WriteString(c, "to the server and back"); err != nil {
		log.Fatal(err)
	}
	if err := c.CloseWrite(); err != nil {
		log.Fatal(err)
	}
	text, err := io.ReadAll(c)
	fmt.Println(string(text), err)
	fmt.Println(c.Close(), <-served)
	// Output:
	// to the server and back <nil>
	// <nil> <nil>
}
