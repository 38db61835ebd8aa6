package uverbs

import "github.com/goverbs/goverbs/internal/driver"

// SupportsDC implements driver.DCs.
func (c *fakeContext) SupportsDC() {}

// A fakeDCT is a QP of type DCT. It gets its number with the second MODIFY_QP.
type fakeDCT struct {
	*fakeQP
	number uint32
	modify int
}

const fakeDCTN = 0x77

var (
	_ driver.DCT = (*fakeDCT)(nil)
	_ driver.ECE = (*fakeDCT)(nil)
)

func (d *fakeDCT) QueryECE() (vendor, options uint32) { return 0, 0 }

func (d *fakeDCT) SetECE(uint32, uint32) error { return nil }

func (d *fakeDCT) ModifyECE(bool) ([]byte, int) { return make([]byte, 16), 16 }

func (d *fakeDCT) ModifiedECE([]byte) {
	if d.modify++; d.modify == 2 {
		d.number = fakeDCTN
	}
}

func (d *fakeDCT) Number() uint32 { return d.number }
