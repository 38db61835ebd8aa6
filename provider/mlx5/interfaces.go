package mlx5

import (
	"github.com/goverbs/goverbs/internal/driver"
	"github.com/goverbs/goverbs/internal/provider"
)

// The optional interfaces that this provider implements.
var (
	_ provider.Importer = mlx5Provider{}

	_ provider.WQs      = (*deviceContext)(nil)
	_ driver.TDs        = (*deviceContext)(nil)
	_ driver.PDImporter = (*deviceContext)(nil)
	_ driver.NullMR     = (*deviceContext)(nil)
	_ driver.DMs        = (*deviceContext)(nil)
	_ driver.DCs        = (*deviceContext)(nil)
	_ driver.Clock      = (*deviceContext)(nil)
	_ driver.WallClock  = (*deviceContext)(nil)
	_ driver.MRAccessor = (*deviceContext)(nil)

	_ driver.Purger   = (*cq)(nil)
	_ driver.Unpolled = (*cq)(nil)
	_ driver.Dropper  = (*srq)(nil)
	_ driver.Dropper  = (*watchedSRQ)(nil)

	_ driver.ECE      = (*qp)(nil)
	_ driver.Finisher = (*qp)(nil)
	_ driver.Stateful = (*qp)(nil)

	_ driver.RawPoster = (*qp)(nil)

	_ driver.DCT = (*dct)(nil)
	_ driver.ECE = (*dct)(nil)

	_ driver.ECE       = (*watchedQP)(nil)
	_ driver.Finisher  = (*watchedQP)(nil)
	_ driver.Stateful  = (*watchedQP)(nil)
	_ driver.RawPoster = (*watchedQP)(nil)

	_ provider.QP  = (*dci)(nil)
	_ provider.QP  = (*ud)(nil)
	_ provider.QP  = (*xrcInitiator)(nil)
	_ provider.QP  = (*watchedQP)(nil)
	_ provider.SRQ = (*watchedSRQ)(nil)
)
