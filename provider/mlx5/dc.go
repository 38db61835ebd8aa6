package mlx5

import (
	"math/bits"

	"github.com/goverbs/goverbs/internal/driver"
	"github.com/goverbs/goverbs/internal/ioctl"
	"github.com/goverbs/goverbs/internal/provider"
	"github.com/goverbs/goverbs/internal/uapi"
	"github.com/goverbs/goverbs/uverbs"
)

// SupportsDC implements driver.DCs.
func (c *deviceContext) SupportsDC() {}

// setDCI adds to a create command what a DCI needs: mlx5dv_create_qp.
func setDCI(req *uapi.Mlx5IbCreateQp, streams uverbs.DCIStreams) {
	req.Flags |= uapi.MLX5_QP_FLAG_TYPE_DCI
	if streams.Concurrent == 0 {
		return
	}
	req.Flags |= uapi.MLX5_QP_FLAG_DCI_STREAM
	req.DciStreams = uapi.Mlx5IbCreateQpDciStreams{LogNumConcurent: log2(streams.Concurrent),
		LogNumErrored: log2(max(streams.Errored, 1))}
}

// log2 returns the logarithm of a power of two.
func log2(n int) uint8 { return uint8(bits.TrailingZeros(uint(n))) }

// dct implements driver.QP for a DCT. It has no queues: the gates of uverbs refuse all requests.
// The kernel only records the attributes until Modify moves it to RTR. Then the device creates the
// DCT and chooses its number.
type dct struct {
	qp
	number uint32
}

// createDCT creates a DCT: create_dct of libmlx5.
func (c *deviceContext) createDCT(
	cfg *uverbs.QPConfig, env provider.QPEnv, outOfOrder bool, create driver.Command,
) (provider.QP, driver.Reply, error) {
	d := &dct{qp: qp{ctx: c, outOfOrder: outOfOrder, target: target{srq: unwatched(env.SRQ).(*srq), key: noNumber}}}
	d.target.sq, d.target.rq = &d.sq, &d.rq
	d.useNothing()
	req := &uapi.Mlx5IbCreateQp{Flags: uapi.MLX5_QP_FLAG_TYPE_DCT, SqBufAddr: cfg.DCKey, Uidx: noNumber - 1} // none
	if c.indexed {
		if req.Uidx = c.targets.add(&d.target); req.Uidx == noNumber {
			return nil, driver.Reply{}, errAllTargets
		}
	}
	if d.ece.supported = c.ece; c.ece {
		req.EceOptions = eceVersion
	}
	resp := new(uapi.Mlx5IbCreateQpResp)
	reply, err := create(ioctl.BytesOf(req), ioctl.BytesOf(resp))
	if err != nil {
		return nil, reply, provider.Join(err, d.Retire(false))
	}
	d.ece.enabled, reply.Number, reply.Cap = resp.EceOptions, 0, driver.Cap{}
	return d, reply, nil
}

// ModifyECE implements driver.ECE. The reply has the number of the DCT.
func (d *dct) ModifyECE(toInit bool) ([]byte, int) { return d.modifyInput(toInit) }

// ModifiedECE implements driver.ECE.
func (d *dct) ModifiedECE(reply []byte) {
	resp := new(uapi.Mlx5IbModifyQpResp)
	copy(ioctl.BytesOf(resp), reply)
	if d.ece.requested != 0 && resp.Dctn != 0 {
		d.ece.requested, d.ece.enabled = 0, resp.EceOptions
	}
	if resp.Dctn == 0 {
		return
	}
	d.number = resp.Dctn
	if !d.ctx.indexed {
		d.ctx.targets.put(d.number, &d.target)
	}
}

// Number implements driver.DCT.
func (d *dct) Number() uint32 { return d.number }

// Retire implements driver.QP.
func (d *dct) Retire(bool) error {
	if !d.retired.Swap(true) && d.target.key != noNumber {
		d.ctx.targets.remove(&d.target, d.ctx.indexed)
	}
	return nil
}

// Reset implements driver.QP. The kernel moves no DCT to RESET.
func (d *dct) Reset() error { return nil }
