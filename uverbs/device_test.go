package uverbs

import (
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
)

// TestProviderNotLinked checks that the error contains the import if the device's provider exists
// but is not linked.
func TestProviderNotLinked(t *testing.T) {
	for _, id := range knownProviders {
		name := driverNames[id]
		_, err := Device{Name: name + "_0", DriverID: id, ABI: 1, Node: "/dev/infiniband/uverbs0"}.Open()
		for _, want := range []string{name + " driver", `import _ "github.com/goverbs/goverbs/provider/` + name + `"`,
			"provider/all"} {
			if !errors.Is(err, ErrNoProvider) || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, want …%s…", name, err, want)
			}
		}
	}
}

// TestKnownProviders checks that knownProviders equals the list in package provider/all.
func TestKnownProviders(t *testing.T) {
	all := string(good(os.ReadFile("../provider/all/all.go"))(t))
	var linked, known []string
	for line := range strings.Lines(all) {
		if _, name, ok := strings.Cut(line, `	_ "github.com/goverbs/goverbs/provider/`); ok {
			name, _, _ = strings.Cut(name, `"`)
			linked = append(linked, name)
		}
	}
	for _, id := range knownProviders {
		known = append(known, driverNames[id])
	}
	slices.Sort(known)
	slices.Sort(linked)
	if len(linked) == 0 || !slices.Equal(known, linked) {
		t.Errorf("the errors know %v, provider/all links %v", known, linked)
	}
}
