package devicetest

import (
	"bytes"
	"errors"
	"testing"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/uverbs"
)

// mark fills memory with a pattern. marked reports whether the pattern is unchanged.
func mark(b []byte) {
	for k := range b {
		b[k] = 0xa5
	}
}

func marked(b []byte) bool { return bytes.Count(b, []byte{0xa5}) == len(b) }

// neighbours allocates memory after an MR was closed. If the addresses of the MR were
// reused, a later write to it would change one of these.
func neighbours(t *testing.T, i *cm.ID, n int) []*uverbs.MR {
	t.Helper()
	var all []*uverbs.MR
	for range 8 {
		mr := must(i.AllocMsgs(n))(t)
		mark(mr.Bytes())
		all = append(all, mr)
	}
	return all
}

func unharmed(t *testing.T, all []*uverbs.MR) {
	t.Helper()
	for _, mr := range all {
		if !marked(mr.Bytes()) {
			t.Error("memory of another owner was written")
		}
		check(t, mr.Close())
	}
}

// TestDeviceCloseMRUnderRecv closes the MR of a posted receive: "The buffer must remain registered until the receive
// completes" (rdma_post_recv(3)). The test checks that the receive fails and that no other memory is written.
func TestDeviceCloseMRUnderRecv(t *testing.T) {
	begin(t)
	for name, register := range map[string]func(*cm.ID, []byte) (*uverbs.MR, error){
		"allocated":  func(i *cm.ID, b []byte) (*uverbs.MR, error) { return i.AllocMsgs(len(b)) },
		"registered": func(i *cm.ID, b []byte) (*uverbs.MR, error) { return i.RegMsgs(b) },
	} {
		t.Run(name, func(t *testing.T) {
			k := newTalk(t)
			client, child := k.pair(t)
			own := make([]byte, 4096)
			mark(own)
			mr := must(register(child, own))(t)
			check(t, child.PostRecv(1, mr.SGE(0, 4096)))
			check(t, mr.Close())
			others := neighbours(t, child, 4096)
			late := must(client.AllocMsgs(256))(t) // some devices put short messages in completions
			check(t, client.PostSend(2, uverbs.Signaled, late.SGE(0, 256)))
			// IBA defines a protection error for it. rxe reports that the QP failed.
			if wc, err := child.RecvComp(k.ctx); err == nil || errors.Is(err, uverbs.WCWRFlushErr) || wc.WRID != 1 {
				t.Errorf("the receive: %+v, %v", wc, err)
			}
			if wc, err := client.SendComp(k.ctx); err == nil != rnic() || wc.WRID != 2 { // iWARP: when it was sent
				t.Errorf("the send: %+v, %v", wc, err)
			}
			check(t, late.Close())
			unharmed(t, others)
			if !marked(own) {
				t.Error("memory was written after its MR was closed")
			}
		})
	}
}

// TestDeviceCloseMRUnderRead closes the target of an outstanding READ: "the buffers
// must remain registered until the read completes" (rdma_post_read(3)).
func TestDeviceCloseMRUnderRead(t *testing.T) {
	begin(t)
	const size = 64 << 10
	failed := 0
	for range 8 {
		k := newTalk(t)
		client, child := k.pair(t)
		source := must(child.AllocRead(size))(t)
		target := must(client.AllocMsgs(size))(t)
		check(t, client.PostRead(1, uverbs.Signaled, source.Addr(), source.RKey(), target.SGE(0, size)))
		check(t, target.Close())
		others := neighbours(t, client, size)
		if _, err := client.SendComp(k.ctx); err != nil {
			failed++
		}
		unharmed(t, others)
		check(t, source.Close())
		check(t, client.Close())
		check(t, child.Close())
	}
	t.Logf("%d of 8 READs were too late", failed)
}

// TestDeviceCloseMRUnderWrite closes the MR that the peer writes to: "The remote buffer
// must always be registered" (rdma_post_write(3)).
func TestDeviceCloseMRUnderWrite(t *testing.T) {
	begin(t)
	k := newTalk(t)
	client, child := k.pair(t)
	sink := must(child.AllocWrite(4096))(t)
	addr, key := sink.Addr(), sink.RKey()
	check(t, sink.Close())
	others := neighbours(t, child, 4096)
	check(t, client.PostWriteInline(1, uverbs.Signaled, addr, key, []byte("late")))
	if rnic() { // the WRITE completes when it is sent; then the peer ends the connection
		k.next(t, cm.EventDisconnected, nil)
		k.next(t, cm.EventDisconnected, nil)
	} else if wc, err := client.SendComp(k.ctx); !errors.Is(err, uverbs.WCRemAccessErr) || wc.WRID != 1 {
		t.Errorf("the write: %+v, %v", wc, err)
	}
	unharmed(t, others)
}

// TestDeviceMROutlivesID checks that the device stays open for an MR and is closed with it: "Users must deregister all
// registered memory before the protection domain can be destroyed" (rdma_dereg_mr(3)).
func TestDeviceMROutlivesID(t *testing.T) {
	begin(t)
	before := kernelObjects(t)
	i := must(cm.NewID(cm.PSTCP))(t)
	check(t, i.Bind(at(deviceIP, 0)))
	mr := must(i.AllocMsgs(64))(t)
	check(t, i.Close())
	mr.Bytes()[0] = 1
	other := must(cm.NewID(cm.PSTCP))(t)
	check(t, other.Bind(at(deviceIP, 0)))
	check(t, mr.Close())
	check(t, other.Close())
	sameObjects(t, before)

	i = must(cm.NewID(cm.PSTCP))(t)
	check(t, i.Bind(at(deviceIP, 0)))
	mr = must(i.AllocMsgs(64))(t)
	check(t, i.Close())
	check(t, mr.Close())
	sameObjects(t, before)
}
