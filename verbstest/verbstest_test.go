package verbstest_test

import (
	"testing"

	"github.com/goverbs/goverbs/internal/sim/errtest"
	"github.com/goverbs/goverbs/internal/sim/leaktest"
	"github.com/goverbs/goverbs/uverbs"
	"github.com/goverbs/goverbs/verbstest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

var check = errtest.Check

func must[T any](v T, err error) func(testing.TB) T { return errtest.Value(v, err) }

// TestFindDevice checks that a program finds and opens the machine's device.
func TestFindDevice(t *testing.T) {
	m := verbstest.New(t)
	all := must(uverbs.Devices())(t)
	if len(all) != 1 || all[0].Name != m.Device() || all[0].Driver() != "mlx5" {
		t.Fatalf("devices: %+v", all)
	}
	c := must(uverbs.Open(""))(t)
	defer c.Close()
	a := must(c.QueryDevice())(t)
	if a.NodeGUID != all[0].NodeGUID {
		t.Errorf("node GUID %v, listed as %v", a.NodeGUID, all[0].NodeGUID)
	}
	p := must(c.QueryPort(1))(t)
	if p.State != uverbs.PortActive || p.LinkLayer != uverbs.LinkEthernet {
		t.Errorf("port: %+v", p)
	}
}

// TestEcho checks that a client and a server on two machines exchange messages, in several tests at
// a time.
func TestEcho(t *testing.T) {
	for range 3 {
		t.Run("", func(t *testing.T) {
			t.Parallel()
			if got, err := newPair(t).echo(); got != "how much?" || err != nil {
				t.Errorf("reply %q, %v", got, err)
			}
		})
	}
}
