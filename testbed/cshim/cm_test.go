//go:build vm

package cshim_test

import (
	"testing"

	"github.com/goverbs/goverbs/testbed/cshim"
	"github.com/goverbs/goverbs/verbstest"
)

func TestCMPrograms(t *testing.T) {
	for _, g := range cshim.CMGames {
		t.Run(g.Program, func(t *testing.T) {
			n := verbstest.NewNetwork(t)
			a, b := n.Machine(), n.Machine()
			cshim.PlayCM(t, g, a.Addr().String(), cshim.New(t, a), cshim.New(t, b))
		})
	}
}
