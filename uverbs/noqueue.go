package uverbs

// noQueue takes the operations of a batch that has no queue to go to: Submit
// says why. The batch's methods need no look at its state so.
type noQueue struct{ ProviderQP }

var nobody ProviderQP = noQueue{}

func (noQueue) Op(Opcode, SendFlags, uint64, uint64, uint32, uint32)     {}
func (noQueue) Atomic(uint64, uint64)                                    {}
func (noQueue) Bind(ProviderBind, error)                                 {}
func (noQueue) Flush(uint32, Placement, Selectivity)                     {}
func (noQueue) SGE(SGE)                                                  {}
func (noQueue) Inline([]byte)                                            {}
func (noQueue) SendSGE(SendFlags, uint64, SGE)                           {}
func (noQueue) WriteSGE(_ SendFlags, _, _ uint64, _ uint32, _ SGE)       {}
func (noQueue) ReadSGE(_ SendFlags, _, _ uint64, _ uint32, _ SGE)        {}
func (noQueue) SendInline(SendFlags, uint64, []byte)                     {}
func (noQueue) WriteInline(_ SendFlags, _, _ uint64, _ uint32, _ []byte) {}
func (noQueue) UDAddr(*AH, uint32, uint32)                               {}
func (noQueue) RemoteSRQ(uint32)                                         {}
