package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"debug/elf"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

// commit stands for the hash of a commit.
var commit = strings.Repeat("c0", 20)

// build builds a release of the repository in root, and returns the directory with its files.
func build(t *testing.T, root string) string {
	t.Helper()
	r := &release{root: root, out: t.TempDir(), version: "v0", commit: commit, seconds: 1 << 30}
	if err := r.build(t.Context(), architectures); err != nil {
		t.Fatal(err)
	}
	return r.out
}

// copyTree returns a directory with the repository's files, as a clone at another place has them.
func copyTree(t *testing.T) string {
	t.Helper()
	names, err := exec.CommandContext(t.Context(), "git", "-C", "..", "ls-files", "-z").Output()
	if err != nil {
		t.Fatal(err)
	}
	root := filepath.Join(t.TempDir(), "a clone")
	for name := range strings.SplitSeq(strings.TrimSuffix(string(names), "\x00"), "\x00") {
		b, err := os.ReadFile(filepath.Join("..", name))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.MkdirAll(filepath.Dir(filepath.Join(root, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, name), b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// TestReproducible builds the same files at two places, and compares all bytes.
func TestReproducible(t *testing.T) {
	a, b := build(t, ".."), build(t, copyTree(t))
	entries, err := os.ReadDir(a)
	if err != nil || len(entries) != 2*len(architectures)+3 {
		t.Fatalf("%v, %v", entries, err)
	}
	for _, e := range entries {
		one, err := os.ReadFile(filepath.Join(a, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		other, err := os.ReadFile(filepath.Join(b, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(one, other) {
			t.Errorf("%s differs between two builds", e.Name())
		}
	}
	t.Run("checksums", func(t *testing.T) { testChecksums(t, a) })
	for _, arch := range architectures {
		t.Run(arch, func(t *testing.T) { testArchive(t, a, arch) })
	}
	t.Run("image", func(t *testing.T) { testImage(t, a) })
	t.Run("provenance", func(t *testing.T) { testProvenance(t, a) })
}

func testChecksums(t *testing.T, dir string) {
	b, err := os.ReadFile(filepath.Join(dir, "SHA256SUMS"))
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(b), "\n"); n != 2*len(architectures)+2 {
		t.Errorf("%d checksums", n)
	}
	for line := range strings.Lines(string(b)) {
		sum, name, _ := strings.Cut(strings.TrimSpace(line), "  ")
		data, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil || fmt.Sprintf("%x", sha256.Sum256(data)) != sum {
			t.Errorf("%s: %v", line, err)
		}
	}
}

var machines = map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}

// testProgram checks that a binary needs no other file.
func testProgram(t *testing.T, arch string, binary []byte) {
	t.Helper()
	f, err := elf.NewFile(bytes.NewReader(binary))
	if err != nil {
		t.Fatal(err)
	}
	if f.Machine != machines[arch] {
		t.Errorf("%v, want %v", f.Machine, machines[arch])
	}
	if slices.ContainsFunc(f.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP }) {
		t.Error("the program is not static")
	}
}

func testArchive(t *testing.T, dir, arch string) {
	f, err := os.Open(filepath.Join(dir, "goverbs-v0-linux-"+arch+".tar.gz"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	top := "goverbs-v0-linux-" + arch + "/"
	names, program := testFiles(t, arch, z, top+"bin/")
	testSBOM(t, dir, arch, program)
	for _, want := range append(notices(top), top+"LICENSE", top+"CHANGELOG.md", top+"doctor.md") {
		if !slices.Contains(names, want) {
			t.Errorf("no %s in %v", want, names)
		}
	}
}

// testFiles checks a tar archive with the program in bin, and returns the names of its files, and the program.
func testFiles(t *testing.T, arch string, r io.Reader, bin string) (names []string, program []byte) {
	t.Helper()
	links := 0
	for a := tar.NewReader(r); ; {
		h, err := a.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, h.Name)
		if !h.ModTime.Equal(epoch) || h.Uid != 0 || h.Gid != 0 {
			t.Errorf("%s: time %v, owner %d:%d", h.Name, h.ModTime, h.Uid, h.Gid)
		}
		switch {
		case h.Typeflag == tar.TypeSymlink && h.Linkname == "goverbs" && strings.HasPrefix(h.Name, bin):
			links++
		case h.Name == bin+"goverbs":
			b, err := io.ReadAll(a)
			if err != nil {
				t.Fatal(err)
			}
			testProgram(t, arch, b)
			if arch == runtime.GOARCH {
				testVersions(t, b)
			}
			program = b
		}
	}
	if links != len(programs) || !slices.Contains(names, bin+"goverbs") {
		t.Errorf("%d links in %v", links, names)
	}
	return names, program
}

// testImage unpacks the image, and checks it with the library that has written it, and its contents.
func testImage(t *testing.T, dir string) {
	root := t.TempDir()
	if out, err := exec.CommandContext(t.Context(), "tar", "-C", root, "-xf",
		filepath.Join(dir, "goverbs-v0-oci.tar")).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	outer, err := layout.ImageIndexFromPath(root)
	if err != nil {
		t.Fatal(err)
	}
	m, err := outer.IndexManifest()
	if err != nil || len(m.Manifests) != 1 || m.Manifests[0].Annotations["io.containerd.image.name"] != imageName+":v0" {
		t.Fatalf("%+v, %v", m, err)
	}
	index, err := outer.ImageIndex(m.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Index(index); err != nil {
		t.Error(err)
	}
	inner, err := index.IndexManifest()
	if err != nil || len(inner.Manifests) != len(architectures) {
		t.Fatalf("%+v, %v", inner, err)
	}
	for i, d := range inner.Manifests {
		img, err := index.Image(d.Digest)
		if err != nil {
			t.Fatal(err)
		}
		if d.Platform.Architecture != architectures[i] {
			t.Errorf("platform %v", d.Platform)
		}
		testLayer(t, img, architectures[i])
	}
}

func testLayer(t *testing.T, img v1.Image, arch string) {
	t.Helper()
	c, err := img.ConfigFile()
	if err != nil || c.Architecture != arch || !slices.Equal(c.Config.Entrypoint, []string{"/bin/goverbs"}) {
		t.Errorf("%+v, %v", c, err)
	}
	layers, err := img.Layers()
	if err != nil || len(layers) != 1 {
		t.Fatalf("%d layers, %v", len(layers), err)
	}
	r, err := layers[0].Uncompressed()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var files []string // without directories
	names, _ := testFiles(t, arch, r, "bin/")
	for _, name := range names {
		if !strings.HasSuffix(name, "/") {
			files = append(files, name)
		}
	}
	want := append(notices(""), "bin/goverbs")
	for _, name := range programs {
		want = append(want, "bin/"+name)
	}
	slices.Sort(files)
	if slices.Sort(want); !slices.Equal(files, want) {
		t.Errorf("the image has %v, want %v", files, want)
	}
	if l := c.Config.Labels; l["org.opencontainers.image.licenses"] != "BSD-3-Clause AND MIT" ||
		l["org.opencontainers.image.revision"] != commit {
		t.Errorf("labels %v", l)
	}
}
