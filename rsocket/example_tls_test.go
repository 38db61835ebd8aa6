package rsocket_test

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"

	"github.com/goverbs/goverbs/rsocket"
)

// RDMA does not encrypt, TLS does: it runs on a Conn as on a TCP connection.
func ExampleConn_tls() {
	certificate, roots := exampleCertificate()
	l, err := rsocket.Listen("tcp", ":7471")
	if err != nil {
		log.Fatal(err)
	}
	defer l.Close()
	sent := make(chan error, 1)
	go func() {
		c, err := tls.NewListener(l, &tls.Config{Certificates: []tls.Certificate{certificate}}).Accept()
		if err == nil {
			_, err = io.WriteString(c, "a secret")
			err = errors.Join(err, c.Close())
		}
		sent <- err
	}()

	plain, err := rsocket.Dial("tcp", "192.0.2.1:7471")
	if err != nil {
		log.Fatal(err)
	}
	c := tls.Client(plain, &tls.Config{RootCAs: roots, ServerName: "server.example"})
	defer c.Close()
	text, err := io.ReadAll(c)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(string(text), <-sent)
	// Output: a secret <nil>
}
