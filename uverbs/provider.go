package uverbs

import "github.com/goverbs/goverbs/internal/driver"

// The interfaces of package driver for the types of this package. Package
// internal/provider instantiates them in the same way, for the providers.
type (
	provider         = driver.Provider[QPConfig, AHAttr, SendWR, RecvWR, SGE, WC]
	providerImporter = driver.Importer[QPConfig, AHAttr, SendWR, RecvWR, SGE, WC]
	providerContext  = driver.Context[QPConfig, AHAttr, SendWR, RecvWR, SGE, WC]
	providerCQ       = driver.CQ[WC]
	providerQP       = driver.QP[SendWR, RecvWR, SGE]
	providerQPEnv    = driver.QPEnv[SendWR, RecvWR]
	providerSRQ      = driver.SRQ[RecvWR]
	providerWQ       = driver.WQ[RecvWR]
	providerWQs      = driver.WQs[RecvWR]
)

// opOf is driver.OpOf. It repeats the expression, because a nested call would count
// towards the limit up to which the compiler inlines the methods of SendBatch.
func opOf(op Opcode, f SendFlags) driver.Op { return driver.Op(op) | driver.Op(f)<<8 }
