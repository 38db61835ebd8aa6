package guide

import (
	"github.com/goverbs/goverbs/rdma"
	"github.com/goverbs/goverbs/uverbs"
)

// GPURegion returns a region of the n bytes of a GPU's memory whose dma-buf has the descriptor fd.
func GPURegion(fd, n int) *rdma.Region {
	return rdma.RegionFunc(n, func(pd *uverbs.PD, a uverbs.Access) (*uverbs.MR, error) {
		return pd.RegDMABuf(fd, 0, n, 0, a&^uverbs.MWBindAccess) // which the kernel does not accept for a dma-buf
	})
}
