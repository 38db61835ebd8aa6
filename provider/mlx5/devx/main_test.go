package devx_test

import (
	"os"
	"testing"

	"github.com/goverbs/goverbs/internal/sim/exampletest"
	"github.com/goverbs/goverbs/internal/sim/leaktest"
)

func TestMain(m *testing.M) {
	if os.Getenv("GOVERBS_DEVICE") != "" {
		leaktest.Main(m)
	}
	leaktest.Main(exampletest.OnMachine(m))
}
