package mlx5

import (
	"github.com/goverbs/goverbs/internal/driver"
	"github.com/goverbs/goverbs/internal/ioctl"
	"github.com/goverbs/goverbs/internal/provider"
	"github.com/goverbs/goverbs/internal/uapi"
)

// Import implements driver.Importer. Registers that the kernel allocated with the context
// belong to the process that created it, so such a context cannot be imported.
func (mlx5Provider) Import(dev *ioctl.Device, query driver.Command) (provider.Context, error) {
	set, err := environment()
	if err != nil {
		return nil, err
	}
	return importContext(dev, query, set)
}

func importContext(dev *ioctl.Device, query driver.Command, set settings) (provider.Context, error) {
	resp := new(uapi.Mlx5IbAllocUcontextResp)
	if _, err := query(nil, ioctl.BytesOf(resp)); err != nil {
		return nil, err
	}
	if resp.TotBfregs != 0 {
		return nil, notSupported("import",
			"the context has the register pages of the program that opened it, and no others are known: open the device")
	}
	c, err := setUp(dev, resp, set)
	if err != nil {
		return nil, err
	}
	return c, nil
}

// ImportPD implements driver.PDImporter.
func (c *deviceContext) ImportPD(handle uint32) error {
	cmd := ioctl.Get()
	defer cmd.Put()
	cmd.Start(uapi.UVERBS_OBJECT_PD, uapi.MLX5_IB_METHOD_PD_QUERY)
	cmd.Handle(uapi.MLX5_IB_ATTR_QUERY_PD_HANDLE, handle)
	ioctl.OutOf[uint32](cmd, uapi.MLX5_IB_ATTR_QUERY_PD_RESP_PDN)
	return c.dev.Do(cmd)
}
