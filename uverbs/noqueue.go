package uverbs

// noQueue ignores the operations of a batch that has no queue. Submit returns the
// error. This way the methods of a batch need not check its state.
type noQueue struct{ ProviderQP }

var nobody ProviderQP = noQueue{}

func (noQueue) Op(_ ProviderOp, _, _ uint64, _, _ uint32)                 {}
func (noQueue) Atomic(uint64, uint64)                                     {}
func (noQueue) Bind(ProviderBind, error)                                  {}
func (noQueue) Flush(uint32, Placement, Selectivity)                      {}
func (noQueue) SGE(SGE)                                                   {}
func (noQueue) Inline([]byte)                                             {}
func (noQueue) OpSGE(_ ProviderOp, _, _ uint64, _, _ uint32, _ SGE)       {}
func (noQueue) OpInline(_ ProviderOp, _, _ uint64, _, _ uint32, _ []byte) {}
func (noQueue) UDAddr(*AH, uint32, uint32)                                {}
func (noQueue) RemoteSRQ(uint32)                                          {}
