package rsocket_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"net/http"

	_ "github.com/goverbs/goverbs/provider/all" // the code for each vendor's devices
	"github.com/goverbs/goverbs/rsocket"
)

// An HTTP server and its client. Only two lines differ from the same programs over TCP: the call of Listen,
// and DialContext of the client.
func Example() {
	l, err := rsocket.Listen("tcp", ":7471")
	if err != nil {
		log.Fatal(err)
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, "hello ", r.URL.Path)
	})}
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()

	client := &http.Client{Transport: &http.Transport{DialContext: new(rsocket.Dialer).DialContext}}
	response, err := client.Get("http://192.0.2.1:7471/rdma")
	if err != nil {
		log.Fatal(err)
	}
	body, err := io.ReadAll(response.Body)
	if err != nil {
		log.Fatal(err)
	}
	response.Body.Close()
	fmt.Printf("%s\n", body)

	client.CloseIdleConnections()
	if err := server.Shutdown(context.Background()); err != nil {
		log.Fatal(err)
	}
	fmt.Println(<-served)
	// Output:
	// hello /rdma
	// http: Server closed
}
