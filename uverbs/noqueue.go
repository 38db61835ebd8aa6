package uverbs

import "github.com/goverbs/goverbs/internal/driver"

// noQueue ignores the operations of a batch that has no queue. Submit returns the
// error. This way the methods of a batch need not check its state.
type noQueue struct{ providerQP }

var nobody providerQP = noQueue{}

func (noQueue) Op(_ Opcode, _ SendFlags, _, _ uint64, _, _ uint32) {}

func (noQueue) Atomic(uint64, uint64) {}

func (noQueue) Bind(driver.Bind, error) {}

func (noQueue) Flush(uint32, uint8, uint8) {}

func (noQueue) SGE(SGE) {}

func (noQueue) Inline([]byte) {}

func (noQueue) OpSGE(_ Opcode, _ SendFlags, _, _ uint64, _ uint32, _ SGE) {}

func (noQueue) OpInline(_ Opcode, _ SendFlags, _, _ uint64, _ uint32, _ []byte) {}

func (noQueue) UDAddr(*driver.AH, uint32, uint32) {}

func (noQueue) RemoteSRQ(uint32) {}

// noQueues is the providerQP of an XRCRecv QP. The gates of the QP refuse all
// requests.
type noQueues struct{ noQueue }

func (noQueues) PostSend([]SendWR) (int, error) { return 0, ErrNoQueue }

func (noQueues) PostRecv([]RecvWR) (int, error) { return 0, ErrNoQueue }

func (noQueues) Begin() {}

func (noQueues) Submit() error { return ErrNoQueue }

func (noQueues) Abort() {}

func (noQueues) SendsOutstanding() int { return 0 }

func (noQueues) RecvsOutstanding() int { return 0 }

func (noQueues) Reset() error { return nil }

func (noQueues) Retire() error { return nil }
