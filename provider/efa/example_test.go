package efa_test

import (
	"context"
	"log"

	"github.com/goverbs/goverbs/uverbs"
)

// A message to a peer. Its Endpoint, and the Q_Key that both use, have come by other means, such as TCP.
func Example() {
	var remote uverbs.Endpoint
	if err := sendTo(context.Background(), "rdmap0s6", remote, 0x11111111, []byte("hello")); err != nil {
		log.Print(err)
	}
}

// sendTo sends a message of up to 32 bytes, and waits until it has arrived.
func sendTo(ctx context.Context, device string, remote uverbs.Endpoint, qkey uint32, message []byte) error {
	dev, err := uverbs.Open(device)
	if err != nil {
		return err
	}
	defer dev.Close() // with all that is created on it
	pd, err := dev.AllocPD()
	if err != nil {
		return err
	}
	cq, err := dev.CreateCQ(uverbs.CQConfig{Entries: 1})
	if err != nil {
		return err
	}
	qp, err := pd.CreateQP(uverbs.QPConfig{Type: uverbs.SRD, SendCQ: cq, MaxSendWR: 1, MaxInline: 32, QKey: qkey})
	if err != nil {
		return err
	}
	if err := qp.Ready(); err != nil {
		return err
	}
	attr, err := qp.AHAttr(remote)
	if err != nil {
		return err
	}
	ah, err := pd.CreateAH(attr)
	if err != nil {
		return err
	}
	if _, err := qp.PostSend(uverbs.SendWR{Opcode: uverbs.OpSend, Flags: uverbs.Signaled, Inline: message,
		AH: ah, QPN: remote.QPN, QKey: qkey}); err != nil {
		return err
	}
	wcs := make([]uverbs.WC, 1)
	if _, err := cq.PollWait(ctx, wcs); err != nil {
		return err
	}
	return wcs[0].Err()
}
