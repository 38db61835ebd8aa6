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

// keyrings are the paths of Debian's archive keys, on Debian itself and with
// the package debian-archive-keyring.
var keyrings = []string{
	"/usr/share/keyrings/debian-archive-keyring.gpg",
	"/usr/share/keyrings/debian-archive-keyring.pgp",
}

// keyring returns the path of Debian's archive keys, which are required for
// downloads.
func keyring() (string, error) {
	for _, name := range keyrings {
		if _, err := os.Stat(name); err == nil {
			return name, nil
		}
	}
	return "", fmt.Errorf("no Debian archive keys at %s: run `apt-get install debian-archive-keyring` as root",
		keyrings[0])
}

// checkHost checks that the host has the programs that set-up needs.
func checkHost() error {
	for program, pkg := range map[string]string{
		"apt-get": "apt", "apt-cache": "apt", "dpkg-deb": "dpkg",
	} {
		if _, err := exec.LookPath(program); err != nil {
			return fmt.Errorf("set-up of the test bed needs Debian's %s, which this machine does not have: "+
				"run `apt-get install %s` as root, or set %s to a bed created on another machine: %w", program, pkg, EnvCache, err)
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

// mirrors returns mirrors of Debian's archive, best first: the variable, those
// of the machine's apt, that of debootstrap.
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

var indexURI = regexp.MustCompile(`(?m)^'(.*)/dists/` +
	`(?:bullseye|bookworm|trixie|forky|sid|stable|oldstable|oldoldstable|testing)/InRelease'`)

// parseMirrors returns the Debian mirrors in apt's list of index files.
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

// parseDebootstrap returns debootstrap's default mirror.
func parseDebootstrap(script string) []string {
	if m := debootstrapMirror.FindStringSubmatch(script); m != nil {
		return []string{strings.TrimRight(m[1], "/")}
	}
	return nil
}
