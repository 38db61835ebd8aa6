package features

import "sync/atomic"

// The name of machines in memory (package verbstest) in the tables, and the kernel whose commands they have.
const (
	Memory       = "memory"
	MemoryKernel = "7.2"
)

// inMemory is set in processes whose tests run on machines in memory.
var inMemory atomic.Bool

// UseMemory makes Here return Memory: the tests of the process run on machines in memory.
func UseMemory() { inMemory.Store(true) }

// memoryTable has the features that machines in memory have and mlx5 does not have, or the opposite. They have the
// others as mlx5 has them.
var memoryTable = []rule{
	{Memory, CMServices, never, "a network in memory has no subnet administrator"},
}
