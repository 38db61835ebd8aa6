// Dist builds what a release consists of: for each architecture an archive with the static program cmd/goverbs and
// links with the names of its programs, an OCI image with nothing else in it, and their checksums.
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
	"strings"
	"syscall"
)

func main() {
	log.SetFlags(0)
	log.SetPrefix("dist: ")
	root := flag.String("root", "..", "`directory` of the repository")
	out := flag.String("o", "../bin/dist", "`directory` for the files; files of earlier builds in it are replaced")
	version := flag.String("version", "", "`version` in the names of the files (default: that of git describe)")
	arch := flag.String("arch", strings.Join(architectures, ","), "`architectures`, comma-separated")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	r := &release{root: *root, out: *out, version: *version}
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
	root, out, version string
	files              []string // the names of the files in out
}

func (r *release) build(ctx context.Context, architectures []string) error {
	if r.version == "" {
		b, err := exec.CommandContext(ctx, "git", "-C", r.root, "describe", "--always", "--dirty", "--tags").Output()
		if err != nil {
			return fmt.Errorf("git describe: %w: give a -version", err)
		}
		r.version = strings.TrimSpace(string(b))
	}
	if err := os.MkdirAll(r.out, 0o755); err != nil {
		return err
	}
	binaries := make(map[string][]byte)
	for _, arch := range architectures {
		binary, err := r.compile(ctx, arch)
		if err != nil {
			return err
		}
		binaries[arch] = binary
		if err := r.archive(arch, binary); err != nil {
			return err
		}
	}
	if err := r.image(architectures, binaries); err != nil {
		return err
	}
	return r.checksums()
}

// compile returns the program for an architecture.
func (r *release) compile(ctx context.Context, arch string) ([]byte, error) {
	dir, err := os.MkdirTemp("", "dist")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	name := filepath.Join(dir, "goverbs")
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w -buildid=",
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
