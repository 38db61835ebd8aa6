package rsocket_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"

	"github.com/goverbs/goverbs/rsocket"
)

// An HTTP client that uses RDMA for servers that are reachable by RDMA, and TCP for others.
func ExampleDialer_DialContext_tcp() {
	dial := func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := new(rsocket.Dialer).DialContext(ctx, network, addr)
		if errors.Is(err, rsocket.ErrNoRDMA) {
			return new(net.Dialer).DialContext(ctx, network, addr)
		}
		return c, err
	}
	client := &http.Client{Transport: &http.Transport{DialContext: dial}}
	defer client.CloseIdleConnections()

	// The loopback address belongs to no RDMA device.
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, "over TCP")
	}))
	defer server.Close()
	response, err := client.Get(server.URL)
	if err != nil {
		log.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s\n", body)
	// Output: over TCP
}
