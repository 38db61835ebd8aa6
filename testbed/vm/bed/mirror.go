package bed

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
)

// keyrings are where Debian's archive keys lie, on Debian itself and where the
// package debian-archive-keyring is installed.
var keyrings = []string{
	"/usr/share/keyrings/debian-archive-keyring.gpg",
	"/usr/share/keyrings/debian-archive-keyring.pgp",
}

// keyring finds Debian's archive keys. Nothing is downloaded without them.
func keyring() (string, error) {
	for _, name := range keyrings {
		if _, err := os.Stat(name); err == nil {
			return name, nil
		}
	}
	return "", fmt.Errorf("no Debian archive keys at %s: run `apt-get install debian-archive-keyring` as root", keyrings[0])
}

// checkHost makes sure that the host has the few programs that set-up uses.
func checkHost() error {
	for program, pkg := range map[string]string{
		"apt-get": "apt", "apt-cache": "apt", "dpkg-deb": "dpkg",
	} {
		if _, err := exec.LookPath(program); err != nil {
			return fmt.Errorf("the test bed is set up with Debian's %s, which this machine lacks: "+
				"run `apt-get install %s` as root, or set %s to a bed that another machine made: %w", program, pkg, EnvCache, err)
		}
	}
	return nil
}

func trimSlashes(uris []string) []string {
	for i, u := range uris {
		uris[i] = strings.TrimRight(u, "/")
	}
	return uris
}

// mirrors lists where Debian's archive may be had, best first: the variable,
// what the machine's apt uses, what debootstrap would use.
func mirrors(ctx context.Context) ([]string, error) {
	if m := strings.TrimSpace(os.Getenv(EnvMirror)); m != "" {
		return trimSlashes(strings.Fields(m)), nil
	}
	var found []string
	uris, err := step{argv: []string{"apt-get", "--print-uris", "update"}}.run(ctx)
	if err == nil {
		found = parseMirrors(uris)
	}
	if script, readErr := os.ReadFile("/usr/sbin/debootstrap"); readErr == nil {
		found = append(found, parseDebootstrap(string(script))...)
	}
	if len(found) == 0 {
		const hint = "this machine's apt names no Debian mirror: set %s to one, as in a sources.list line"
		if err != nil {
			return nil, fmt.Errorf(hint+": %w", EnvMirror, err)
		}
		return nil, fmt.Errorf(hint, EnvMirror)
	}
	return found, nil
}

var indexURI = regexp.MustCompile(`(?m)^'(.*)/dists/(?:bullseye|bookworm|trixie|forky|sid|stable|oldstable|oldoldstable|testing)/InRelease'`)

// parseMirrors finds the Debian mirrors in what apt would fetch at an update.
func parseMirrors(uris string) []string {
	var found []string
	for _, m := range indexURI.FindAllStringSubmatch(uris, -1) {
		if !slices.Contains(found, m[1]) {
			found = append(found, m[1])
		}
	}
	return found
}

var debootstrapMirror = regexp.MustCompile(`(?m)^DEF_MIRROR="([^"$]+)"`)

// parseDebootstrap finds the mirror that debootstrap was built with.
func parseDebootstrap(script string) []string {
	if m := debootstrapMirror.FindStringSubmatch(script); m != nil {
		return []string{strings.TrimRight(m[1], "/")}
	}
	return nil
}
