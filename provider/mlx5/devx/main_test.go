package devx_test

import (
	"os"
	"testing"

	"github.com/goverbs/goverbs/internal/sim/leaktest"
	"github.com/goverbs/goverbs/verbstest"
)

func TestMain(m *testing.M) {
	if os.Getenv("GOVERBS_DEVICE") != "" {
		leaktest.Main(m)
	}
	os.Exit(leaktest.Run(func() int { return verbstest.Main(m) }))
}
