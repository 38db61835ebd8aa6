package pingpong

import (
	"strings"
	"testing"
	"time"
)

func TestReport(t *testing.T) {
	var b strings.Builder
	opt := Defaults("test", 4096)
	if err := report(&b, opt, 822800*time.Microsecond); err != nil {
		t.Fatal(err)
	}
	const want = "8192000 bytes in 0.82 seconds = 79.65 Mbit/sec\n1000 iters in 0.82 seconds = 822.80 usec/iter\n"
	if b.String() != want {
		t.Errorf("got %q, want %q", b.String(), want)
	}
}
