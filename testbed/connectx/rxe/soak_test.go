//go:build vm && soak

package rxe_test

import (
	"fmt"
	"os"
	"strconv"
	"testing"
)

// TestSoakJudge repeats, on each kernel, GOVERBS_SOAK_JUDGE rounds with rxe
// over a cable that loses, duplicates and reorders frames.
func TestSoakJudge(t *testing.T) {
	rounds := 20
	if text := os.Getenv("GOVERBS_SOAK_JUDGE"); text != "" {
		var err error
		if rounds, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
	}
	for _, kernel := range []string{"6.1", "6.12", "7.2"} {
		t.Run(kernel, func(t *testing.T) {
			j := newJudge(t, kernel)
			for i := range rounds {
				for _, disorder := range []int{0, 10} {
					j.loss, j.disorder = 20-disorder, disorder
					for _, ip := range []string{ipv4, ipv6} {
						name := fmt.Sprintf("%d/mess %d/%s/", i, disorder, ip)
						t.Run(name+"ours", func(t *testing.T) { j.ours(t, ip, 1024) })
						t.Run(name+"theirs", func(t *testing.T) { j.theirs(t, ip, 1024) })
					}
				}
			}
			j.t = t
		})
	}
}
