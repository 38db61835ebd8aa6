package rdma_test

import (
	"context"
	"fmt"
	"log"

	"github.com/goverbs/goverbs/rdma"
)

// A client finds a service by multicast: it asks the group, and the service replies to the client alone. Datagrams may
// be lost: a client asks again after a while.
func ExampleJoinGroup() {
	ctx := context.Background()
	join := func() *rdma.Group {
		g, err := rdma.JoinGroup(ctx, "239.1.2.3", nil)
		if err != nil {
			log.Fatal(err)
		}
		return g
	}
	service, client := join(), join()
	defer service.Close()
	defer client.Close()

	if err := client.Send(ctx, []byte("who has the table?")); err != nil {
		log.Fatal(err)
	}

	question, err := service.Recv(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s\n", question.Bytes())
	err = service.SendTo(ctx, []byte("192.0.2.1:7471"), question.From())
	question.Release()
	if err != nil {
		log.Fatal(err)
	}

	answer, err := client.Recv(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s\n", answer.Bytes())
	answer.Release()
	// Output:
	// who has the table?
	// 192.0.2.1:7471
}
