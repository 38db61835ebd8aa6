package main

import (
	"os"
	"strings"
	"testing"
)

func TestNotes(t *testing.T) {
	const log = "# Changelog\n\n## [0.2.0]\n\n- b: [x](docs/x.md#y), [z](https://example.com)\n\n" +
		"## [0.1.0] - 2027-01-02\n\n- a\n\n## [0.0.1]\n"
	for version, want := range map[string]string{
		"v0.2.0": "- b: [x](https://github.com/goverbs/goverbs/blob/v0.2.0/docs/x.md#y), [z](https://example.com)\n",
		"v0.1.0": "- a\n",
	} {
		if got, err := notes(log, version); got != want || err != nil {
			t.Errorf("%s: %q, %v", version, got, err)
		}
	}
	for version, want := range map[string]string{"v0.0.1": "is empty", "v0.3.0": "no section", "v0.1": "not a version",
		"0.1.0": "not a version", "": "not a version"} {
		if got, err := notes(log, version); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %q, %v", version, got, err)
		}
	}
}

// The changelog has the section of the first release, so that a tag is all that it needs.
func TestFirstRelease(t *testing.T) {
	text, err := os.ReadFile("../../CHANGELOG.md")
	if err != nil {
		t.Fatal(err)
	}
	section, err := notes(string(text), "v0.1.0")
	if err != nil || !strings.Contains(section, "### Added") {
		t.Errorf("%q, %v", section, err)
	}
}
