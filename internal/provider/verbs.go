package provider

import (
	"github.com/goverbs/goverbs/internal/driver"
	"github.com/goverbs/goverbs/uverbs"
)

// The interfaces of package driver for the types of uverbs.
type (
	// Provider is implemented by each provider, and Importer by those whose contexts
	// can be shared.
	Provider = driver.Provider[uverbs.QPConfig, uverbs.AHAttr, uverbs.SendWR, uverbs.RecvWR, uverbs.SGE,
		uverbs.Opcode, uverbs.SendFlags, uverbs.WC]
	Importer = driver.Importer[uverbs.QPConfig, uverbs.AHAttr, uverbs.SendWR, uverbs.RecvWR, uverbs.SGE,
		uverbs.Opcode, uverbs.SendFlags, uverbs.WC]
	// Context is a provider's part of a uverbs.Context. WQs is one with work queues.
	Context = driver.Context[uverbs.QPConfig, uverbs.AHAttr, uverbs.SendWR, uverbs.RecvWR, uverbs.SGE,
		uverbs.Opcode, uverbs.SendFlags, uverbs.WC]
	WQs = driver.WQs[uverbs.RecvWR]
	// CQ, QP, SRQ and WQ are a provider's parts of the queues.
	CQ  = driver.CQ[uverbs.WC]
	QP  = driver.QP[uverbs.SendWR, uverbs.RecvWR, uverbs.SGE, uverbs.Opcode, uverbs.SendFlags]
	SRQ = driver.SRQ[uverbs.RecvWR]
	WQ  = driver.WQ[uverbs.RecvWR]
	// QPEnv is what a new QP uses of other objects.
	QPEnv = driver.QPEnv[uverbs.SendWR, uverbs.RecvWR]
	// QPOwner is the uverbs.QP of a QP.
	QPOwner = driver.QPOwner[uverbs.SendWR]
)
