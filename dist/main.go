// Dist builds what a release consists of: for each architecture an archive with the static program cmd/goverbs, links
// with the names of its programs and the licences of what is linked in, and a bill of materials; an OCI image with
// nothing else in it; the provenance of these files, and their checksums.
//
//	go run -C dist . -o ../bin/dist
//
// The same commit, built with the same version of Go, gives the same bytes: paths, times and the order of files do not
// depend on the machine.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
)

func main() {
	log.SetFlags(0)
	log.SetPrefix("dist: ")
	root := flag.String("root", "..", "`directory` of the repository")
	out := flag.String("o", "../bin/dist", "`directory` for the files; files of earlier builds in it are replaced")
	commit := flag.String("commit", "", "`hash` of the commit (default: that of git)")
	seconds := flag.Int64("time", 0, "time of the commit in `seconds` since 1970 (default: that of git)")
	version := flag.String("version", "", "`version` in the names of the files (default: that of git describe)")
	arch := flag.String("arch", strings.Join(architectures, ","), "`architectures`, comma-separated")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	r := &release{root: *root, out: *out, version: *version, commit: *commit, seconds: *seconds}
	if err := r.build(ctx, strings.Split(*arch, ",")); err != nil {
		log.Fatal(err)
	}
}

// architectures are those of a release.
var architectures = []string{"amd64", "arm64"}

// programs are the names of the links to the program.
var programs = []string{"asyncwatch", "devinfo", "doctor", "perftest", "rnc", "rping", "rproxy"}

// documents are the files of the repository that archives have too.
var documents = []string{"CHANGELOG.md", "LICENSE", "docs/doctor.md"}

// A release is one run.
type release struct {
	root, out       string
	version, commit string
	seconds         int64    // time of the commit, since 1970
	files           []string // the names of the files in out
}

func (r *release) build(ctx context.Context, architectures []string) error {
	if err := r.describe(ctx); err != nil {
		return err
	}
	if err := os.MkdirAll(r.out, 0o755); err != nil {
		return err
	}
	binaries := make(map[string][]byte)
	var all []*module // of any architecture
	for _, arch := range architectures {
		binary, err := r.compile(ctx, arch)
		if err != nil {
			return err
		}
		binaries[arch] = binary
		modules, err := r.linked(ctx, binary)
		if err != nil {
			return err
		}
		all = merge(all, modules)
		if err := r.archive(arch, binary, modules); err != nil {
			return err
		}
		if err := r.sbom(arch, binary, modules); err != nil {
			return err
		}
	}
	if err := r.image(architectures, binaries, all); err != nil {
		return err
	}
	if err := r.provenance(architectures, all); err != nil {
		return err
	}
	return r.checksums()
}

// acceptable matches what a version may be: it is part of the names of files, of the image, and of flags of the linker.
var acceptable = regexp.MustCompile(`\A[A-Za-z0-9][A-Za-z0-9._+-]*\z`)

// describe sets what the command line has not set, from git.
func (r *release) describe(ctx context.Context) error {
	git := func(args ...string) (string, error) {
		b, err := exec.CommandContext(ctx, "git", append([]string{"-C", r.root}, args...)...).Output()
		if err != nil {
			return "", fmt.Errorf("git %s: %w: give -version, -commit and -time", args[0], err)
		}
		return strings.TrimSpace(string(b)), nil
	}
	var err error
	if r.version == "" {
		if r.version, err = git("describe", "--always", "--dirty", "--tags"); err != nil {
			return err
		}
	}
	if r.commit == "" {
		if r.commit, err = git("rev-parse", "HEAD"); err != nil {
			return err
		}
	}
	if r.seconds == 0 {
		text, err := git("show", "-s", "--format=%ct", r.commit)
		if err != nil {
			return err
		}
		if r.seconds, err = strconv.ParseInt(text, 10, 64); err != nil {
			return fmt.Errorf("git show: %w", err)
		}
	}
	for _, name := range []string{r.version, r.commit} {
		if !acceptable.MatchString(name) {
			return fmt.Errorf("%q is not a version or commit: use letters, digits and . _ + -", name)
		}
	}
	return nil
}

// compile returns the program for an architecture.
func (r *release) compile(ctx context.Context, arch string) ([]byte, error) {
	dir, err := os.MkdirTemp("", "dist")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	name := filepath.Join(dir, "goverbs")
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-ldflags="+r.linkerFlags(),
		"-o", name, "./cmd/goverbs")
	cmd.Dir = r.root
	// The settings of the machine do not apply.
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+arch, "GOFLAGS=", "GOEXPERIMENT=",
		"GOAMD64=v1", "GOARM64=v8.0", "GOWORK=off", "GOFIPS140=off")
	cmd.Stderr = os.Stderr
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("go build for %s: %w", arch, err)
	}
	return os.ReadFile(name)
}

// linkerFlags returns flags that remove what the program does not need, and set its version.
func (r *release) linkerFlags() string {
	const variable = " -X " + mainModule + "/internal/version."
	return "-s -w -buildid=" + variable + "release=" + r.version + variable + "commit=" + r.commit
}
