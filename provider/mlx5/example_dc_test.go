package mlx5_test

import (
	"context"
	"fmt"
	"log"

	_ "github.com/goverbs/goverbs/provider/mlx5"
	"github.com/goverbs/goverbs/uverbs"
)

// dcKey is the access key of the DCT, which its peers know.
const dcKey = 0x1122334455667788

// newDCT returns a DCT, which receives from any number of DCIs, with one receive of 64 bytes in its SRQ.
func newDCT(pd *uverbs.PD, cq *uverbs.CQ, mr *uverbs.MR) (*uverbs.QP, error) {
	srq, err := pd.CreateSRQ(uverbs.SRQConfig{MaxWR: 64})
	if err != nil {
		return nil, err
	}
	if _, err := srq.PostRecv(uverbs.RecvWR{SGL: []uverbs.SGE{mr.SGE(0, 64)}}); err != nil {
		return nil, err
	}
	dct, err := pd.CreateQP(uverbs.QPConfig{Type: uverbs.DCT, RecvCQ: cq, SRQ: srq, DCKey: dcKey})
	if err != nil {
		return nil, err
	}
	return dct, dct.Ready()
}

// newDCI returns a DCI, which sends to any number of DCTs: each request names one.
func newDCI(pd *uverbs.PD, cq *uverbs.CQ) (*uverbs.QP, error) {
	dci, err := pd.CreateQP(uverbs.QPConfig{Type: uverbs.DCI, SendCQ: cq, MaxSendWR: 64, MaxInline: 64})
	if err != nil {
		return nil, err
	}
	return dci, dci.Ready()
}

// Dynamically connected transport (DC): a DCI sends to a DCT without a connection. The program of the DCT
// sends its Endpoint and its key to those of the DCIs.
func Example_dynamicallyConnected() {
	dev := must(uverbs.Open(""))
	defer dev.Close()
	pd := must(dev.AllocPD())
	mr := must(pd.Alloc(64, uverbs.LocalWrite))
	sends, receives := must(dev.CreateCQ(uverbs.CQConfig{Entries: 64})), must(dev.CreateCQ(uverbs.CQConfig{Entries: 64}))
	dct, dci := must(newDCT(pd, receives, mr)), must(newDCI(pd, sends))

	peer := must(dct.Endpoint())
	ah := must(pd.CreateAH(must(dci.AHAttr(peer))))
	must(dci.PostSend(uverbs.SendWR{Opcode: uverbs.OpSend, Flags: uverbs.Signaled, Inline: []byte("to a DCT"),
		AH: ah, QPN: peer.QPN, DCKey: dcKey}))

	var wc [1]uverbs.WC
	for _, cq := range []*uverbs.CQ{sends, receives} {
		must(cq.PollWait(context.Background(), wc[:]))
		if err := wc[0].Err(); err != nil {
			log.Fatal(err)
		}
	}
	fmt.Printf("received: %s\n", mr.Bytes()[:wc[0].ByteLen])
	// Output: received: to a DCT
}

func must[T any](v T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return v
}
