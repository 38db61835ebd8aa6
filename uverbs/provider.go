package uverbs

import "github.com/goverbs/goverbs/internal/driver"

// The interfaces of package driver for the types of this package. Package
// internal/provider instantiates them in the same way, for the providers.
type (
	provider         = driver.Provider[QPConfig, AHAttr, SendWR, RecvWR, SGE, Opcode, SendFlags, WC]
	providerImporter = driver.Importer[QPConfig, AHAttr, SendWR, RecvWR, SGE, Opcode, SendFlags, WC]
	providerContext  = driver.Context[QPConfig, AHAttr, SendWR, RecvWR, SGE, Opcode, SendFlags, WC]
	providerCQ       = driver.CQ[WC]
	providerQP       = driver.QP[SendWR, RecvWR, SGE, Opcode, SendFlags]
	providerQPEnv    = driver.QPEnv[SendWR, RecvWR]
	providerSRQ      = driver.SRQ[RecvWR]
)
