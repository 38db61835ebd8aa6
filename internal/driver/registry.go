package driver

import (
	"fmt"
	"sync"
)

// A Driver is the part of a [Provider] that the registry needs.
type Driver interface {
	// DriverID is the kernel's number of the driver: RDMA_DRIVER_*.
	DriverID() uint32
	// ABI returns the range of the driver's uverbs ABI versions that the provider
	// supports.
	ABI() (lowest, highest uint64)
}

var registry = struct {
	sync.Mutex
	byID map[uint32]Driver
}{byID: map[uint32]Driver{}}

// Register registers a provider. Providers call it from init. It panics if the
// driver already has one.
func Register[QPConfig, AHAttr, SendWR, RecvWR, SGE, Opcode, SendFlags, WC any](
	p Provider[QPConfig, AHAttr, SendWR, RecvWR, SGE, Opcode, SendFlags, WC],
) {
	registry.Lock()
	defer registry.Unlock()
	id := p.DriverID()
	if registry.byID[id] != nil {
		panic(fmt.Sprintf("driver: two providers for driver %d", id))
	}
	registry.byID[id] = p
}

// Lookup returns the provider of a driver, or nil.
func Lookup(id uint32) Driver {
	registry.Lock()
	defer registry.Unlock()
	return registry.byID[id]
}

// Registered reports whether any provider is registered. Without a provider no
// device can be opened.
func Registered() bool {
	registry.Lock()
	defer registry.Unlock()
	return len(registry.byID) > 0
}
