package bed

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// A row of a kernel that the bed has: its name, its architecture, and what mlx5 and rxe do
// there.
var kernelRow = regexp.MustCompile(`(?m)^\| (\d+\.\d+(?:-\w+)?) \| (amd64|arm64)[^|]* \| (\w+)[^|]* \| (\w+)[^|]* \|`)

// TestSupportedKernels checks that docs/support.md says of the bed's kernels, and of no
// other kernel, that something is tested on them.
func TestSupportedKernels(t *testing.T) {
	page, err := os.ReadFile("../../../docs/support.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(page), "\n## Kernels\n")
	table, _, _ = strings.Cut(table, "\n## ")
	var tested []string
	for _, m := range kernelRow.FindAllStringSubmatch(table, -1) {
		if !slices.Contains(m[3:], "tested") {
			continue
		}
		name := "kernel-" + m[1]
		if m[2] != "amd64" {
			name += "-" + m[2]
		}
		tested = append(tested, name)
	}
	var have []string
	for p := range recipes() {
		if strings.HasPrefix(string(p), "kernel-") && p != Kernel612SIW { // it is Kernel612 with another device
			have = append(have, string(p))
		}
	}
	slices.Sort(tested)
	slices.Sort(have)
	if !slices.Equal(tested, have) {
		t.Errorf("docs/support.md has %q as tested, the bed has %q", tested, have)
	}
	if n := strings.Count(table, "tested"); n < len(have) {
		t.Errorf("%d cells say tested", n)
	}
}
