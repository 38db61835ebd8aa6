package bed

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestParseMirrors(t *testing.T) {
	const uris = `'http://mirror.example/debian/dists/bookworm/InRelease' mirror.example_x 0
'http://mirror.example/debian/dists/bookworm-updates/InRelease' x 0
'http://mirror.example/debian-security/dists/bookworm-security/InRelease' x 0
'mirror+file:/etc/apt/mirrors/debian.list/dists/trixie/InRelease' x 0
'http://mirror.example/debian/dists/bookworm/main/binary-amd64/Packages.xz' x 0
`
	want := []string{"http://mirror.example/debian", "mirror+file:/etc/apt/mirrors/debian.list"}
	if diff := cmp.Diff(want, parseMirrors(uris)); diff != "" {
		t.Error(diff)
	}
	if got := parseDebootstrap("#!/bin/sh\nDEF_MIRROR=\"http://mirror.example/debian\"\n"); len(got) != 1 ||
		got[0] != want[0] {
		t.Errorf("debootstrap's mirror is %q", got)
	}
}

// TestMirrorVariable checks that the variable may have several mirrors, because
// old suites are removed from mirrors at different times.
func TestMirrorVariable(t *testing.T) {
	t.Setenv(EnvMirror, " http://mirror.example/debian/  http://old.example/debian\n")
	got, err := mirrors(t.Context())
	if want := []string{"http://mirror.example/debian", "http://old.example/debian"}; err != nil ||
		!slices.Equal(got, want) {
		t.Errorf("mirrors %q, %v, want %q", got, err, want)
	}
}

func TestParseInstall(t *testing.T) {
	const out = `NOTE: This is only a simulation!
Inst linux-base (4.17~bpo13+1 Debian Backports:stable-backports [all])
Inst linux-image-6.12.107+deb13-amd64 (6.12.107-1 Debian:13.7/stable [amd64])
Inst libc6:arm64 (2:2.41-12 Debian:13.7/stable [arm64]) []
Conf linux-base (4.17~bpo13+1 Debian Backports:stable-backports [all])
`
	got, err := parseInstall(out)
	want := []pkg{{"linux-base", "4.17~bpo13+1"}, {"linux-image-6.12.107+deb13-amd64", "6.12.107-1"},
		{"libc6", "2:2.41-12"}}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%v, %v", got, err)
	}
	if _, err := parseInstall("0 upgraded"); err == nil {
		t.Error("nothing to install is no error")
	}
	r := recipe{Only: kernelPackages, Kernel: "6.12."}
	if chosen, err := r.choose(got); err != nil || len(chosen) != 1 {
		t.Errorf("chosen %v, %v", chosen, err)
	}
	r = recipe{Leave: `^libc6$`}
	if chosen, err := r.choose(got); err != nil || !slices.Equal(chosen, want[:2]) {
		t.Errorf("without libc6: %v, %v", chosen, err)
	}
	r = recipe{Only: kernelPackages}
	r.Kernel = "6.13."
	if _, err := r.choose(got); err == nil {
		t.Error("another kernel than the recipe's is no error")
	}
}

func TestParseStatus(t *testing.T) {
	if p, text, ok := parseStatus("dlstatus:1:42.5:Retrieving file: 1 of 2"); p != 42 ||
		text != "Retrieving file: 1 of 2" || !ok {
		t.Error(p, text, ok)
	}
	for _, bad := range []string{"", "dlstatus:1:x:y", "pmstatus:1:2:3", "dlstatus:1:101:y"} {
		if _, _, ok := parseStatus(bad); ok {
			t.Errorf("%q was accepted", bad)
		}
	}
}

func TestNewestImage(t *testing.T) {
	names := []string{
		"linux-image-7.2.6+deb13-amd64", "linux-image-7.2.12+deb13-amd64", "linux-image-7.2.9+deb13-amd64",
		"linux-image-7.2.13+deb13-cloud-amd64", "linux-image-7.2.14+deb13-amd64-unsigned", "linux-image-7.2.15+deb13-arm64",
		"linux-image-7.20.1+deb13-amd64", "linux-image-6.1.0-9-amd64", "linux-image-6.1.0-50-amd64",
		"linux-image-7.2.11+deb13-arm64-16k", "linux-image-7.2.16+deb13-arm64-16k-unsigned",
	}
	for _, c := range []struct{ kernel, flavour, want string }{
		{"7.2.", "amd64", "linux-image-7.2.12+deb13-amd64"},
		{"6.1.", "amd64", "linux-image-6.1.0-50-amd64"},
		{"6.12.", "amd64", ""},
		{"7.2.", "arm64", "linux-image-7.2.15+deb13-arm64"},
		{"7.2.", "arm64-16k", "linux-image-7.2.11+deb13-arm64-16k"},
	} {
		if got := newestImage(names, c.kernel, c.flavour); got != c.want {
			t.Errorf("%s %s: %q, want %q", c.kernel, c.flavour, got, c.want)
		}
	}
}

// TestRecipes checks that the directory of a part changes with its recipe, and
// that parts have different ones.
func TestRecipes(t *testing.T) {
	seen := make(map[string]Part)
	for p, r := range recipes() {
		if !slices.Contains(Parts(), p) {
			t.Errorf("part %s is not in Parts", p)
		}
		if other := seen[r.hash()]; other != "" {
			t.Errorf("%s and %s have the same recipe", p, other)
		}
		seen[r.hash()] = p
		changed := r
		changed.Install = append(slices.Clone(r.Install), "cowsay")
		if changed.hash() == r.hash() {
			t.Errorf("%s: another recipe has the same hash", p)
		}
		if outdated(r.dir(p)) || !outdated(changed.dir(p)) {
			t.Errorf("%s: outdated is wrong", p)
		}
	}
	if usual := usual(); len(usual) != len(Parts())-3 || slices.Contains(usual, Fabric) || slices.Contains(usual, Apps) ||
		slices.Contains(usual, Kernel612SIW) {
		t.Errorf("%v are set up if no part is named", usual)
	}
	if outdated("lock") || outdated("other-0123456789ab") {
		t.Error("a foreign directory counts as outdated")
	}
	if p, err := KernelPart("6.12", "arm64"); err != nil || p != Kernel612ARM {
		t.Error(p, err)
	}
	if p, err := KernelPart("6.12-16k", "arm64"); err != nil || p != Kernel612ARM16K {
		t.Error(p, err)
	}
	if _, err := KernelPart("5.4", ""); err == nil ||
		!strings.Contains(err.Error(), "5.10, 6.1, 6.12, 6.12 for arm64, 6.12-siw, 6.12-16k for arm64, 7.2") {
		t.Errorf("error %v", err)
	}
}

func TestDrops(t *testing.T) {
	r := recipes()[Root]
	kernel := recipes()[Kernel72]
	for name, want := range map[string]bool{
		"usr/share/doc/bash/README":                   true,
		"usr/share/doc/rdma-core/tests/a.py":          false,
		"usr/bin/bash":                                false,
		"usr/share/manual":                            false,
		"usr/share/man/man1/bash.1.gz":                true,
		"usr/lib/modules/1/kernel/drivers/gpu/drm.ko": false,
	} {
		if got := r.drops(name, false); got != want {
			t.Errorf("root, %s: %v", name, got)
		}
	}
	for name, want := range map[string]bool{
		"usr/lib/modules/7.2.1/kernel/drivers/gpu/drm/drm.ko.xz": true,
		"lib/modules/6.1/kernel/sound/core/snd.ko":               true,
		"usr/lib/modules/7.2.1/kernel/drivers/net/dummy.ko.xz":   false,
		"usr/lib/modules/7.2.1/modules.builtin":                  false,
	} {
		if got := kernel.drops(name, false); got != want {
			t.Errorf("kernel, %s: %v", name, got)
		}
	}
}

// archive returns a tar file.
func archive(t *testing.T, headers ...tar.Header) io.Reader {
	t.Helper()
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for _, h := range headers {
		data := ""
		if h.Typeflag == tar.TypeReg {
			data = "data of " + h.Name
		}
		h.Size = int64(len(data))
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, data); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return &buf
}

func TestUntar(t *testing.T) {
	dir := t.TempDir()
	tree, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer tree.Close()
	err = untar(archive(t,
		tar.Header{Name: "./", Typeflag: tar.TypeDir},
		tar.Header{Name: "./usr/bin/", Typeflag: tar.TypeDir, Mode: 0o755},
		tar.Header{Name: "./bin", Typeflag: tar.TypeSymlink, Linkname: "usr/bin"},
		tar.Header{Name: "./bin/su", Typeflag: tar.TypeReg, Mode: 0o4755},
		tar.Header{Name: "./usr/bin/hard", Typeflag: tar.TypeLink, Linkname: "./usr/bin/su"},
		tar.Header{Name: "./dev/null", Typeflag: tar.TypeChar, Mode: 0o666},
		tar.Header{Name: "./usr/share/man/page", Typeflag: tar.TypeReg, Mode: 0o644},
	), tree, recipe{Drop: documentation})
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(filepath.Join(dir, "usr/bin/su"))
	if err != nil || info.Mode() != 0o755 {
		t.Errorf("su: %v, %v", info, err)
	}
	for name, want := range map[string]bool{"usr/bin/hard": true, "dev/null": false, "usr/share/man/page": false} {
		if exists(filepath.Join(dir, name)) != want {
			t.Errorf("%s: wrong existence", name)
		}
	}
}

// TestUntarStaysInside checks that nothing is written outside of the tree.
func TestUntarStaysInside(t *testing.T) {
	for name, headers := range map[string][]tar.Header{
		"dots": {{Name: "../evil", Typeflag: tar.TypeReg, Mode: 0o644}},
		"absolute": {{Name: "out", Typeflag: tar.TypeSymlink, Linkname: "/tmp"},
			{Name: "out/evil", Typeflag: tar.TypeReg, Mode: 0o644}},
		"link": {{Name: "hard", Typeflag: tar.TypeLink, Linkname: "../evil"}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "tree")
			if err := os.Mkdir(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			tree, err := os.OpenRoot(dir)
			if err != nil {
				t.Fatal(err)
			}
			defer tree.Close()
			if err := untar(archive(t, headers...), tree, recipe{}); err == nil {
				t.Error("no error")
			}
			if exists(filepath.Join(dir, "../evil")) || exists("/tmp/evil") {
				t.Error("a file was written outside of the tree")
			}
		})
	}
}

func TestVerifyFiles(t *testing.T) {
	dir := t.TempDir()
	tree, list := filepath.Join(dir, "tree"), filepath.Join(dir, "list")
	for _, name := range []string{"a", "b/c", "b/d"} {
		path := filepath.Join(tree, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(name), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(hashFiles(tree, list), verifyFiles(t.Context(), tree, list)); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(
		os.WriteFile(filepath.Join(tree, "a"), []byte("x"), 0o644),
		os.Remove(filepath.Join(tree, "b/c")),
		os.WriteFile(filepath.Join(tree, "new"), nil, 0o644)); err != nil {
		t.Fatal(err)
	}
	err := verifyFiles(t.Context(), tree, list)
	for _, want := range []string{"a has changed", "b/c is missing", "new is not in the list"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("no %q in %v", want, err)
		}
	}
}

func TestStep(t *testing.T) {
	out, err := step{argv: []string{"sh", "-c", "echo to stdout"}}.run(t.Context())
	if err != nil || out != "to stdout\n" {
		t.Errorf("%q, %v", out, err)
	}
	_, err = step{argv: []string{"sh", "-c", "echo what went wrong >&2; exit 3"}}.run(t.Context())
	if err == nil || !strings.Contains(err.Error(), "what went wrong") || !strings.Contains(err.Error(), "exit status 3") {
		t.Errorf("error %v", err)
	}
	var seen []int
	s := step{argv: []string{"sh", "-c", "echo dlstatus:1:7.0:text >&3"},
		progress: func(p int, _ string) { seen = append(seen, p) }}
	if _, err := s.run(t.Context()); err != nil || !slices.Equal(seen, []int{7}) {
		t.Errorf("progress %v, %v", seen, err)
	}
}

// TestStepStalls checks that a program without output is stopped, and one that
// repeats the same status line, too.
func TestStepStalls(t *testing.T) {
	for _, script := range []string{"sleep 60", "while :; do echo dlstatus:1:7.0:same >&3; sleep 0.05; done"} {
		_, err := step{argv: []string{"sh", "-c", script}, limit: 300 * time.Millisecond}.run(t.Context())
		if err == nil || !strings.Contains(err.Error(), "no progress for 300ms") {
			t.Errorf("%s: error %v", script, err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := (step{argv: []string{"sleep", "60"}}).run(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error %v", err)
	}
}

func TestLockWaits(t *testing.T) {
	dir := t.TempDir()
	first, err := lockCache(t.Context(), dir, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	var output bytes.Buffer
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := lockCache(ctx, dir, &output); !errors.Is(err, context.DeadlineExceeded) ||
		!strings.Contains(output.String(), "waiting") {
		t.Errorf("error %v, output %q", err, &output)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	second, err := lockCache(t.Context(), dir, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	if err := second.Close(); err != nil {
		t.Error(err)
	}
}

// TestSweep checks that leftovers of a killed set-up are removed, and that
// trees in use are kept.
func TestSweep(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{newPrefix + "root.1", oldPrefix + "2", oldPrefix + "3", "root-0123456789ab"} {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.Mkdir(path, 0o755),
			os.WriteFile(filepath.Join(path, completeFile), nil, 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	used, err := os.Open(filepath.Join(dir, oldPrefix+"3", completeFile))
	if err != nil {
		t.Fatal(err)
	}
	defer used.Close()
	if err := errors.Join(flock(used, lockShared), sweep(dir)); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{
		newPrefix + "root.1": false, oldPrefix + "2": false, oldPrefix + "3": true, "root-0123456789ab": true,
	} {
		if exists(filepath.Join(dir, name)) != want {
			t.Errorf("%s exists: %v", name, !want)
		}
	}
}

// TestPublish checks that a part appears complete, that an update replaces it
// and keeps the old one for its users, and that parts of other recipes are
// removed.
func TestPublish(t *testing.T) {
	cache := t.TempDir()
	b := &Bed{cache: cache, parts: map[Part]string{Headers: filepath.Join(cache, recipes()[Headers].dir(Headers))}}
	s := &setup{bed: b, out: io.Discard}
	publish := func(text string) {
		t.Helper()
		work := filepath.Join(cache, newPrefix+text)
		if err := errors.Join(
			os.MkdirAll(filepath.Join(work, treeDir), 0o755),
			os.WriteFile(filepath.Join(work, treeDir, "file"), []byte(text), 0o644),
			s.publish(work, b.parts[Headers])); err != nil {
			t.Fatal(err)
		}
		tree, err := b.Tree(Headers)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(filepath.Join(tree, "file")); err != nil || string(got) != text {
			t.Errorf("the tree holds %q, %v", got, err)
		}
		if missing, err := b.missing(false); err != nil || len(missing) != 0 {
			t.Errorf("missing: %v, %v", missing, err)
		}
	}
	count := func(want int) {
		t.Helper()
		if entries, err := os.ReadDir(cache); err != nil || len(entries) != want {
			t.Errorf("%d directories, want %d: %v %v", len(entries), want, entries, err)
		}
	}
	publish("first")
	count(1)
	publish("second")
	count(1)
	use, err := b.InUse(Headers)
	if err != nil {
		t.Fatal(err)
	}
	publish("third")
	count(2) // a guest still uses the second
	if err := errors.Join(use.Close(), os.Mkdir(filepath.Join(cache, "headers-000000000000"), 0o755),
		prune(cache)); err != nil {
		t.Fatal(err)
	}
	count(1)
}
