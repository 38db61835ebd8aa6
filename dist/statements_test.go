package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/CycloneDX/cyclonedx-go"
	slsa "github.com/in-toto/attestation/go/predicates/provenance/v1"
	intoto "github.com/in-toto/attestation/go/v1"
	"google.golang.org/protobuf/encoding/protojson"
)

// notices returns the files with licences below a directory: those of all that is linked in.
func notices(dir string) (names []string) {
	for _, name := range []string{mainModule + "/LICENSE", goModule + "/LICENSE", goModule + "/PATENTS",
		"golang.org/x/sys/LICENSE", "golang.org/x/sys/PATENTS"} {
		names = append(names, dir+"licenses/"+name)
	}
	return names
}

// testVersions runs the program by each of its names.
func testVersions(t *testing.T, binary []byte) {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "goverbs"), binary, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range append(slices.Clone(programs), "goverbs") {
		path := filepath.Join(dir, name)
		if name != "goverbs" {
			if err := os.Symlink("goverbs", path); err != nil {
				t.Fatal(err)
			}
		}
		out, err := exec.CommandContext(t.Context(), path, "-version").CombinedOutput()
		if text := string(out); err != nil || !strings.Contains(text, " v0 (go") ||
			!strings.HasSuffix(text, ", commit "+commit[:12]+")\n") {
			t.Errorf("%s -version: %v\n%s", name, err, text)
		}
	}
}

// testSBOM checks that the bill of materials of a program has the modules that go version -m prints, and its hash.
func testSBOM(t *testing.T, dir, arch string, binary []byte) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "goverbs")
	if err := os.WriteFile(file, binary, 0o755); err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), "go", "version", "-m", file).Output()
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"pkg:golang/stdlib@" + strings.TrimPrefix(strings.Fields(string(out))[1], "go") + " BSD-3-Clause"}
	for line := range strings.Lines(string(out)) {
		if f := strings.Fields(line); f[0] == "dep" {
			want = append(want, "pkg:golang/"+f[1]+"@"+f[2]+" BSD-3-Clause")
		}
	}
	bom := readSBOM(t, filepath.Join(dir, "goverbs-v0-linux-"+arch+".cdx.json"))
	var got, uses []string
	for _, c := range *bom.Components {
		got = append(got, c.PackageURL+" "+(*c.Licenses)[0].License.ID)
		uses = append(uses, c.BOMRef)
	}
	if len(want) < 2 || !slices.Equal(got, want) {
		t.Errorf("components %v, want %v", got, want)
	}
	c := bom.Metadata.Component
	if c.Version != "v0" || (*c.Hashes)[0].Value != fmt.Sprintf("%x", sha256.Sum256(binary)) ||
		!slices.Equal(*(*bom.Dependencies)[0].Dependencies, uses) || bom.SerialNumber != "" ||
		bom.Metadata.Timestamp != "2004-01-10T13:37:04Z" {
		t.Errorf("%+v, %+v", bom.Metadata, *c)
	}
}

// readSBOM decodes a bill of materials strictly: all its fields are CycloneDX's.
func readSBOM(t *testing.T, name string) *cyclonedx.BOM {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	bom := new(cyclonedx.BOM)
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(bom); err != nil {
		t.Fatal(err)
	}
	return bom
}

// testProvenance checks that the provenance is a statement of all other files, by the types of in-toto and SLSA.
func testProvenance(t *testing.T, dir string) {
	b, err := os.ReadFile(filepath.Join(dir, "goverbs-v0.provenance.json"))
	if err != nil {
		t.Fatal(err)
	}
	var s intoto.Statement
	if err := protojson.Unmarshal(b, &s); err != nil {
		t.Fatal(err)
	}
	if err := s.Validate(); err != nil || s.Type != intoto.StatementTypeUri || s.PredicateType != predicateType {
		t.Errorf("%v: %v", err, &s)
	}
	sums, err := os.ReadFile(filepath.Join(dir, "SHA256SUMS"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range s.Subject {
		if !strings.Contains(string(sums), f.Digest["sha256"]+"  "+f.Name+"\n") {
			t.Errorf("%v is not in\n%s", f, sums)
		}
	}
	if n := strings.Count(string(sums), "\n"); len(s.Subject) != n-1 {
		t.Errorf("%d files, want all %d but the provenance", len(s.Subject), n)
	}
	inner, err := protojson.Marshal(s.Predicate)
	if err != nil {
		t.Fatal(err)
	}
	var p slsa.Provenance
	if err := protojson.Unmarshal(inner, &p); err != nil {
		t.Fatal(err)
	}
	from := p.BuildDefinition.ResolvedDependencies
	if err := p.Validate(); err != nil || len(from) != 3 || from[0].Digest["gitCommit"] != commit ||
		len(from[2].Digest["dirHash"]) != 64 {
		t.Errorf("%v: %v", err, &p)
	}
}

// TestDescribe checks that git gives what the command line does not, and which names are refused.
func TestDescribe(t *testing.T) {
	git := func(args ...string) string {
		out, err := exec.CommandContext(t.Context(), "git", args...).Output()
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(string(out))
	}
	r := &release{root: ".."}
	if err := r.describe(t.Context()); err != nil || r.commit != git("rev-parse", "HEAD") || r.version == "" ||
		fmt.Sprint(r.seconds) != git("show", "-s", "--format=%ct") {
		t.Errorf("%+v, %v", r, err)
	}
	for _, c := range []struct {
		r    release
		want string
	}{
		{release{root: t.TempDir()}, "give -version, -commit and -time"},
		{release{version: "v0 -X main.x=y", commit: commit, seconds: 1}, "use letters, digits and . _ + -"},
		{release{version: "../v0", commit: commit, seconds: 1}, "use letters, digits and . _ + -"},
		{release{version: "v0", commit: "-x", seconds: 1}, "use letters, digits and . _ + -"},
	} {
		if err := c.r.describe(context.Background()); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v", c.r, err)
		}
	}
}

func TestIdentify(t *testing.T) {
	for text, want := range map[string]string{
		"Neither the\nname of Google": "BSD-3-Clause", "Permission is hereby granted, free\n of charge": "MIT",
		"All rights reserved.": "",
	} {
		if got := identify([]byte(text)); got != want {
			t.Errorf("%q: %q", text, got)
		}
	}
	m := &module{path: mainModule}
	if err := m.readLicense(t.Context(), t.TempDir()); err == nil || !strings.Contains(err.Error(), "no licence in") {
		t.Errorf("a module without a licence: %v", err)
	}
}
