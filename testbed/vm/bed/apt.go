package bed

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// aptStatusFD is the descriptor on which apt reports its progress.
const aptStatusFD = "APT::Status-Fd=3"

// aptConf is the configuration of an apt that is independent of the machine's:
// an empty package database and private lists. The machine's Acquire settings
// (proxies, credentials) apply, because the files of /etc/apt/apt.conf.d are
// read before this one. The #clear lines remove hooks for the machine's own
// packages.
const aptConf = `Dir::State "%[1]s"; Dir::State::lists "%[1]s/lists"; Dir::State::status "%[1]s/dpkg/status";
Dir::Cache "%[1]s"; Dir::Cache::pkgcache ""; Dir::Cache::srcpkgcache "";
Dir::Etc::sourcelist "%[1]s/bed.sources"; Dir::Etc::sourceparts "%[1]s/empty";
Dir::Etc::preferences "/dev/null"; Dir::Etc::preferencesparts "%[1]s/empty";
Dir::Etc::trusted "/dev/null"; Dir::Etc::trustedparts "/dev/null";
#clear APT::Update::Pre-Invoke;
#clear APT::Update::Post-Invoke;
#clear APT::Update::Post-Invoke-Success;
#clear DPkg::Pre-Invoke;
#clear DPkg::Post-Invoke;
#clear DPkg::Pre-Install-Pkgs;
#clear APT::Default-Release;
#clear APT::Architectures;
APT::Architecture "%[2]s"; APT::Architectures { "%[2]s"; };
APT::Sandbox::User "root";
APT::Get::AllowUnauthenticated "false";
Acquire::AllowInsecureRepositories "false";
APT::Update::Error-Mode "any"; Acquire::Retries "3"; Acquire::Languages "none";
APT::Install-Recommends "false"; APT::Get::Assume-Yes "true"; APT::Keep-Downloaded-Packages "true";
Acquire::IndexTargets::deb::DEP-11::DefaultEnabled "false";
Acquire::IndexTargets::deb::CNF::DefaultEnabled "false";
`

// apt is a private apt: one per architecture.
type apt struct {
	dir    string
	suites []string
	types  string // of the indexes
}

// newApt writes the state of a private apt in dir, for a recipe.
func newApt(dir string, r recipe) (*apt, error) {
	a := &apt{dir: dir, suites: r.suites(), types: "deb"}
	if r.Source != "" {
		a.types = "deb deb-src"
	}
	if strings.ContainsAny(dir, "\"\n%;") {
		return nil, fmt.Errorf("the path %q cannot be used in apt's configuration: set %s to another", dir, EnvCache)
	}
	for _, sub := range []string{"lists/partial", "dpkg", "empty"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o755); err != nil {
			return nil, err
		}
	}
	return a, errors.Join(
		os.WriteFile(filepath.Join(dir, "dpkg/status"), nil, 0o644),
		os.WriteFile(filepath.Join(dir, "apt.conf"), fmt.Appendf(nil, aptConf, dir, r.Arch), 0o644))
}

// update fetches and verifies the indexes of the suites from one mirror.
func (a *apt) update(ctx context.Context, mirror, keyring string, progress func(int, string)) error {
	if strings.ContainsAny(mirror, " \t\r\n") {
		return fmt.Errorf("the mirror %q is not a URI", mirror)
	}
	sources := fmt.Sprintf("Types: %s\nURIs: %s\nSuites: %s\nComponents: main\nSigned-By: %s\n",
		a.types, mirror, strings.Join(a.suites, " "), keyring)
	if err := os.WriteFile(filepath.Join(a.dir, "bed.sources"), []byte(sources), 0o644); err != nil {
		return err
	}
	_, err := a.get("", progress, "update").run(ctx)
	return err
}

// get returns a step that runs apt-get of the private apt.
func (a *apt) get(dir string, progress func(int, string), args ...string) step {
	argv := append([]string{"apt-get", "-c", filepath.Join(a.dir, "apt.conf"), "-o", aptStatusFD}, args...)
	return step{dir: dir, argv: argv, progress: progress}
}

// A pkg is a package with the version that apt has chosen.
type pkg struct{ name, version string }

// resolve returns the packages of a recipe.
func (a *apt) resolve(ctx context.Context, r recipe) ([]pkg, error) {
	install := r.Install
	if len(install) == 0 {
		image, err := a.newestImage(ctx, r)
		if err != nil {
			return nil, err
		}
		install = []string{image}
		if r.Module != "" {
			install = append(install, r.builders(image)...)
		}
	}
	args := append([]string{"-s", "-t", r.Suite, "install"}, install...)
	out, err := a.get("", nil, args...).run(ctx)
	if err != nil {
		return nil, err
	}
	all, err := parseInstall(out)
	if err != nil {
		return nil, err
	}
	return r.choose(all)
}

// newestImage returns the name of the newest image package of the recipe's
// kernel.
func (a *apt) newestImage(ctx context.Context, r recipe) (string, error) {
	out, err := step{argv: []string{
		"apt-cache", "-c", filepath.Join(a.dir, "apt.conf"), "pkgnames", "linux-image-" + r.Kernel,
	}}.run(ctx)
	if err != nil {
		return "", err
	}
	image := newestImage(strings.Fields(out), r.Kernel, r.flavour())
	if image == "" {
		return "", fmt.Errorf("suite %s has no kernel %s* any more: update packages.go", r.Suite, r.Kernel)
	}
	return image, nil
}

// newestImage returns the image package of exactly this flavour (no cloud, rt,
// unsigned or debug variant) with the highest version in its name.
func newestImage(names []string, kernel, flavour string) string {
	plain := regexp.MustCompile(`^linux-image-` + regexp.QuoteMeta(kernel) + `[0-9]+(\+deb[0-9]+)?(-[0-9]+)?-` +
		regexp.QuoteMeta(flavour) + `$`)
	best, bestKey := "", []int(nil)
	for _, name := range names {
		if !plain.MatchString(name) {
			continue
		}
		if key := numbers(name); slices.Compare(key, bestKey) > 0 {
			best, bestKey = name, key
		}
	}
	return best
}

var number = regexp.MustCompile(`[0-9]+`)

// numbers returns the numbers in a package name, for comparison.
func numbers(name string) []int {
	var key []int
	for _, n := range number.FindAllString(name, -1) {
		v, err := strconv.Atoi(n)
		if err != nil {
			v = 1<<31 - 1 // more digits than in any version
		}
		key = append(key, v)
	}
	return key
}

var installLine = regexp.MustCompile(`(?m)^Inst ([a-z0-9][a-z0-9+.-]*)(?::[a-z0-9]+)? \(([^ ]+) `)

// parseInstall parses the packages in the output of `apt-get -s install`.
func parseInstall(out string) ([]pkg, error) {
	var all []pkg
	for _, m := range installLine.FindAllStringSubmatch(out, -1) {
		all = append(all, pkg{m[1], m[2]})
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("apt would install nothing:\n%s", out)
	}
	return all, nil
}

// choose returns the packages that the recipe needs of all that apt would
// install, and checks the version of a kernel.
func (r recipe) choose(all []pkg) ([]pkg, error) {
	only, err := regexp.Compile(r.Only)
	if err != nil {
		return nil, err
	}
	leave, err := regexp.Compile(cmp.Or(r.Leave, "^$"))
	if err != nil {
		return nil, err
	}
	chosen := slices.DeleteFunc(slices.Clone(all),
		func(p pkg) bool { return !only.MatchString(p.name) || leave.MatchString(p.name) })
	if len(chosen) == 0 {
		return nil, fmt.Errorf("none of the packages for %v matches %s: correct packages.go", r.Install, r.Only)
	}
	for _, p := range chosen {
		if r.Module != "" && builder.MatchString(p.name) && !kernelBuilder.MatchString(p.name) {
			continue // a tool
		}
		if !strings.HasPrefix(p.version, r.Kernel) {
			return nil, fmt.Errorf("suite %s now has %s in version %s instead of %s*: update packages.go",
				r.Suite, p.name, p.version, r.Kernel)
		}
	}
	return chosen, nil
}

// download downloads packages to dir. apt verifies their hashes.
func (a *apt) download(ctx context.Context, dir string, pkgs []pkg, progress func(int, string)) error {
	args := []string{"download"}
	for _, p := range pkgs {
		args = append(args, p.name+"="+p.version)
	}
	_, err := a.get(dir, progress, args...).run(ctx)
	return err
}

// binaryUpload is the suffix of a version whose source package is that of the version before it.
var binaryUpload = regexp.MustCompile(`\+b[0-9]+$`)

// downloadSource downloads the upstream archive of the recipe's source package to dir. apt verifies its hash.
func (a *apt) downloadSource(ctx context.Context, dir string, r recipe, pkgs []pkg, progress func(int, string)) error {
	i := slices.IndexFunc(pkgs, func(p pkg) bool { return p.name == r.Install[0] })
	if i < 0 {
		return fmt.Errorf("the version of %s is that of %s, which is not among the packages: correct packages.go", r.Source,
			r.Install[0])
	}
	source := r.Source + "=" + binaryUpload.ReplaceAllString(pkgs[i].version, "")
	_, err := a.get(dir, progress, "source", "--download-only", "--tar-only", source).run(ctx)
	return err
}

// releases returns the signed InRelease files of the recipe's suites.
func (a *apt) releases(r recipe) ([]string, error) {
	var files []string
	for _, suite := range r.suites() {
		found, err := filepath.Glob(filepath.Join(a.dir, "lists", "*_dists_"+suite+"_InRelease"))
		if err != nil {
			return nil, err
		}
		if len(found) == 0 {
			return nil, fmt.Errorf("apt kept no signed InRelease of %s", suite)
		}
		files = append(files, found...)
	}
	return files, nil
}
