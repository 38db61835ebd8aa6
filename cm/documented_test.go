package cm

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// TestDocumentedWaits checks what docs/five-functions.md and the comment of ConnParam say about a peer without a
// receive. With rdma_cm it is asked again after 655.36 ms: the kernel's cma sets MinRNRTimer 0.
func TestDocumentedWaits(t *testing.T) {
	page := strings.Join(strings.Fields(string(good(os.ReadFile("../docs/five-functions.md"))(t))), " ")
	source := string(good(os.ReadFile("param.go"))(t))
	comment := strings.Join(strings.Fields(strings.ReplaceAll(source, "//", "")), " ")
	const rnr = 0.65536
	broken := fmt.Sprintf("%.1f", (defaultRetryCount+1)*rnr)
	p := (*ConnParam)(nil).complete()
	for _, want := range []string{
		fmt.Sprintf("%.2f s with rdma_cm", rnr),
		fmt.Sprintf("`ConnParam.RNRRetryCount` says: %d, the default, is without limit", p.RNRRetryCount),
		fmt.Sprintf("With the default of %d that is after %s s, with `uverbs.WCRetryExcErr`", p.RetryCount, broken),
		"An SGE from before `MR.Close` is not checked again",
		"The level of ids chooses the right queue: the SRQ of `ID.CreateSRQ`, or the one that `QPConfig.SRQ` names",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("five-functions.md does not say %q", want)
		}
	}
	for _, want := range []string{
		"with the default RetryCount the connection breaks after about " + broken + " seconds",
		fmt.Sprintf("0 stands for %d, NoRetry for none", p.RetryCount),
		fmt.Sprintf("0 stands for %d, NoRetry for none", p.RNRRetryCount),
	} {
		if !strings.Contains(comment, want) {
			t.Errorf("ConnParam's comment does not say %q", want)
		}
	}
}
