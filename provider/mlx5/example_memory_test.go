package mlx5_test

import (
	"context"
	"fmt"
	"log"

	"github.com/goverbs/goverbs/uverbs"
)

// Memory of the adapter is registered like other memory. Peers reach it without the bus of the host. Its addresses
// begin at 0.
func Example_deviceMemory() {
	dev, err := uverbs.Open("")
	if err != nil {
		log.Fatal(err)
	}
	defer dev.Close()
	pd, err := dev.AllocPD()
	if err != nil {
		log.Fatal(err)
	}
	dm, err := dev.AllocDM(uverbs.DMConfig{Size: 4096})
	if err != nil {
		log.Fatal(err) // matches uverbs.ErrNotSupported if the device has no such memory
	}
	mr, err := pd.RegDM(dm, 0, dm.Size(), uverbs.LocalWrite|uverbs.RemoteWrite|uverbs.ZeroBased)
	if err != nil {
		log.Fatal(err)
	}
	qp := loopQP(pd) // a connected QP

	if _, err := qp.PostSend(uverbs.SendWR{Opcode: uverbs.OpWrite, Flags: uverbs.Signaled,
		Inline: []byte("on the adapter"), RemoteAddr: 64, RKey: mr.RKey()}); err != nil {
		log.Fatal(err)
	}
	var wc [1]uverbs.WC
	if _, err := qp.SendCQ().PollWait(context.Background(), wc[:]); err != nil {
		log.Fatal(err)
	}
	b := make([]byte, 16)                       // ReadAt and WriteAt access 4 bytes at a time
	if _, err := dm.ReadAt(b, 64); err != nil { // this process reads it too, slowly
		log.Fatal(err)
	}
	fmt.Println(string(b[:14]), wc[0].Err())
	// Output: on the adapter <nil>
}
