package rping

import (
	"testing"

	"github.com/goverbs/goverbs/internal/leak/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }
