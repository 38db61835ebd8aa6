package uverbs

import "github.com/goverbs/goverbs/internal/driver"

// discard ignores the operations of a batch that has no queue. Submit returns the
// error. This way the methods of a batch need not check its state.
type discard struct{ providerQP }

var discardOps providerQP = discard{}

func (discard) Op(_ Opcode, _ SendFlags, _, _ uint64, _, _ uint32) {}

func (discard) Atomic(uint64, uint64) {}

func (discard) Bind(driver.Bind, error) {}

func (discard) Flush(uint32, uint8, uint8) {}

func (discard) SGE(SGE) {}

func (discard) Inline([]byte) {}

func (discard) OpSGE(_ Opcode, _ SendFlags, _, _ uint64, _ uint32, _ SGE) {}

func (discard) OpInline(_ Opcode, _ SendFlags, _, _ uint64, _ uint32, _ []byte) {}

func (discard) UDAddr(*driver.AH, uint32, uint32) {}

func (discard) RemoteSRQ(uint32) {}

func (discard) DCAddr(*driver.AH, uint32, uint64, uint16) {}

// queueless is the providerQP of an XRCRecv QP. The gates of the QP refuse all
// requests.
type queueless struct{ discard }

func (queueless) PostSend([]SendWR) (int, error) { return 0, ErrNoQueue }

func (queueless) PostRecv([]RecvWR) (int, error) { return 0, ErrNoQueue }

func (queueless) Begin() {}

func (queueless) Submit() error { return ErrNoQueue }

func (queueless) Abort() {}

func (queueless) SendsOutstanding() int { return 0 }

func (queueless) RecvsOutstanding() int { return 0 }

func (queueless) Reset() error { return nil }

func (queueless) Retire(bool) error { return nil }
