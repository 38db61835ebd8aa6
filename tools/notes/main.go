// Notes prints the section of a version from the changelog, for the page of a release:
//
//	notes CHANGELOG.md v0.1.0
package main

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/mod/semver"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: notes CHANGELOG.md VERSION")
		os.Exit(2)
	}
	text, err := os.ReadFile(os.Args[1])
	if err == nil {
		var section string
		if section, err = notes(string(text), os.Args[2]); err == nil {
			fmt.Print(section)
			return
		}
	}
	fmt.Fprintln(os.Stderr, "notes:", err)
	os.Exit(1)
}

// notes returns the section of a version, without its heading. Links to files of the repository lead to the version.
func notes(changelog, version string) (string, error) {
	if !semver.IsValid(version) || semver.Canonical(version) != version {
		return "", fmt.Errorf("%q is not a version such as v0.1.0", version)
	}
	heading := "\n## [" + strings.TrimPrefix(version, "v") + "]"
	_, rest, found := strings.Cut(changelog, heading)
	if !found {
		return "", fmt.Errorf("the changelog has no section %s: write it, or tag another version", strings.TrimSpace(heading))
	}
	_, section, _ := strings.Cut(rest, "\n")
	section, _, _ = strings.Cut(section, "\n## ")
	if section = strings.TrimSpace(section); section == "" {
		return "", errors.New("the section is empty")
	}
	return absolute(section, version) + "\n", nil
}

// absolute replaces links to files, which do not work on the page of a release.
func absolute(text, version string) string {
	parts := strings.Split(text, "](")
	for i, p := range parts[1:] {
		if !strings.Contains(strings.SplitN(p, ")", 2)[0], "://") {
			parts[i+1] = "https://github.com/goverbs/goverbs/blob/" + version + "/" + p
		}
	}
	return strings.Join(parts, "](")
}
