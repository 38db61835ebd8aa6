package efa

import (
	"errors"
	"testing"

	"github.com/goverbs/goverbs/internal/provider"
	"github.com/goverbs/goverbs/uverbs"
)

// A receive queue has the ids that 16 bits allow, whatever the device says.
func TestMostReceives(t *testing.T) {
	c := new(deviceContext)
	c.attr.MaxRqWr, c.attr.MaxRqSge = 1<<17, 3
	for n, want := range map[int]error{maxDescriptors / 3: nil, maxDescriptors/3 + 1: uverbs.ErrInvalid} {
		err := c.checkQP(&uverbs.QPConfig{Type: uverbs.SRD, MaxRecvWR: n, MaxRecvSGE: 3}, provider.QPEnv{})
		if !errors.Is(err, want) {
			t.Errorf("%d receives: %v, want %v", n, err, want)
		}
	}
}
