package fakemlx5

import (
	"encoding/binary"
	"os"

	"github.com/goverbs/goverbs/internal/ioctl"
	"github.com/goverbs/goverbs/internal/sim/call"
	"github.com/goverbs/goverbs/internal/sim/connectx/engine"
	"github.com/goverbs/goverbs/internal/uapi"
	"github.com/goverbs/goverbs/uverbs"
)

// A dm is device memory: pages of Kernel.DeviceMemory, from their first byte on.
type dm struct {
	at    uint64
	spans []span
}

func (k *Kernel) allocDM(c ioctl.Call) {
	page := *call.Out[uint16](c, uapi.MLX5_IB_ATTR_ALLOC_DM_RESP_PAGE_INDEX)
	at := addressOf(k.DeviceMemory[int(page)*os.Getpagesize():])
	k.dms[call.Handle(c, uapi.UVERBS_ATTR_ALLOC_DM_HANDLE)] = &dm{at: at,
		spans: k.share(pages(at, call.Num(c, uapi.UVERBS_ATTR_ALLOC_DM_LENGTH)))}
}

// dmElsewhere returns how much device memory the adapter's other files have, in whole pages.
func (k *Kernel) dmElsewhere() (n uint64) {
	for other := range k.adapter.kernels {
		if other == k {
			continue
		}
		for _, d := range other.dms {
			_, size := d.spans[0].page()
			n += size
		}
	}
	return n
}

func (k *Kernel) freeDM(h uint32) error {
	k.unshare(k.dms[h].spans)
	delete(k.dms, h)
	return nil
}

// regDM creates the key of an MR of device memory, whose addresses begin at 0. The beginning of
// the memory need not be aligned, so this is a piece of a key of the pages.
func (k *Kernel) regDM(c ioctl.Call) error {
	pd := k.PDs[call.Handle(c, uapi.UVERBS_ATTR_REG_DM_MR_PD_HANDLE)]
	d := k.dms[call.Handle(c, uapi.UVERBS_ATTR_REG_DM_MR_DM_HANDLE)]
	off, n := call.Num(c, uapi.UVERBS_ATTR_REG_DM_MR_OFFSET), call.Num(c, uapi.UVERBS_ATTR_REG_DM_MR_LENGTH)
	b := pagesOf(d.at, off+n)
	inner, err := k.adapter.HCA.CreateMKey(engine.MKeyAttr{Mode: engine.MTT, Rights: engine.LocalRead | engine.LocalWrite,
		QPN: engine.AnyQPN, PD: pd, Length: off + n, PageShift: 12, Octowords: uint32(len(b.Pages)+1) / 2,
		Translations: translations(b)})
	if err != nil {
		return refused
	}
	piece := binary.BigEndian.AppendUint32(nil, uint32(n))
	piece = binary.BigEndian.AppendUint32(piece, inner.Key())
	piece = binary.BigEndian.AppendUint64(piece, off)
	access := uverbs.Access(call.Num(c, uapi.UVERBS_ATTR_REG_DM_MR_ACCESS_FLAGS))
	key, err := k.adapter.HCA.CreateMKey(engine.MKeyAttr{Mode: engine.KLM, Rights: rightsOf(access), QPN: engine.AnyQPN,
		PD: pd, Length: n, Octowords: 1, Translations: piece})
	if err != nil {
		k.check(k.adapter.HCA.DestroyMKey(inner.Index))
		return refused
	}
	k.mrs[call.Handle(c, uapi.UVERBS_ATTR_REG_DM_MR_HANDLE)] = &mr{MKey: key, inner: inner}
	number := key.Key()
	call.Reply(c, uapi.UVERBS_ATTR_REG_DM_MR_RESP_LKEY, &number)
	call.Reply(c, uapi.UVERBS_ATTR_REG_DM_MR_RESP_RKEY, &number)
	return nil
}
