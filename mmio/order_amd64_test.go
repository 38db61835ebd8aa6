package mmio_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/mmio"
)

// On amd64 these functions are Go code and inlined. Each must compile to one
// access of its width, without a lock prefix, and keep its place between other
// stores and loads.

//go:noinline
func publishes(before, after *uint64, record *uint32, v uint32) {
	*before = 1
	mmio.Publish32BE(record, v)
	*after = 2
}

//go:noinline
func releases(before, after *uint64, word *uint32, v uint32) {
	*before = 1
	mmio.Release32(word, v)
	*after = 2
}

//go:noinline
func acquires(word, then *uint64) uint64 {
	v := mmio.Acquire64(word)
	return v + *then
}

func TestInlined(t *testing.T) {
	before, after, word := new(uint64), new(uint64), new(uint32)
	publishes(before, after, word, 1)
	releases(before, after, word, 1)
	acquires(before, after)
	access := regexp.MustCompile(`^(\w+) .*\b0\(\w+\)`)
	code := disassembly(t, "amd64", `mmio_test\.(publishes|releases|acquires)$`)
	for name, want := range map[string][]string{
		"publishes": {"MOVQ", "MOVL", "MOVQ"},
		"releases":  {"MOVQ", "MOVL", "MOVQ"},
		"acquires":  {"MOVQ", "MOVQ"},
	} {
		var got []string
		for _, ins := range code[name] {
			if m := access.FindStringSubmatch(ins); m != nil && m[1] != "LEAQ" {
				got = append(got, m[1])
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s accesses memory by %v, want %v:\n%s", name, got, want, strings.Join(code[name], "\n"))
		}
	}
}
