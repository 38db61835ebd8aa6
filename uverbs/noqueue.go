package uverbs

import "github.com/goverbs/goverbs/internal/driver"

// noQueue ignores the operations of a batch that has no queue. Submit returns the
// error. This way the methods of a batch need not check its state.
type noQueue struct{ providerQP }

var nobody providerQP = noQueue{}

func (noQueue) Op(_ driver.Op, _, _ uint64, _, _ uint32)                 {}
func (noQueue) Atomic(uint64, uint64)                                    {}
func (noQueue) Bind(driver.Bind, error)                                  {}
func (noQueue) Flush(uint32, uint8, uint8)                               {}
func (noQueue) SGE(SGE)                                                  {}
func (noQueue) Inline([]byte)                                            {}
func (noQueue) OpSGE(_ driver.Op, _, _ uint64, _, _ uint32, _ SGE)       {}
func (noQueue) OpInline(_ driver.Op, _, _ uint64, _, _ uint32, _ []byte) {}
func (noQueue) UDAddr(*driver.AH, uint32, uint32)                        {}
func (noQueue) RemoteSRQ(uint32)                                         {}
