package main

import (
	"bytes"
	"context"
	"debug/buildinfo"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

const (
	mainModule = "github.com/goverbs/goverbs"
	goModule   = "stdlib" // how lists of vulnerabilities name Go's runtime and standard library
)

// A module is one whose code is linked into the program.
type module struct {
	path, version string
	sum           string            // its hash in go.sum, "" for the main module and Go
	license       string            // SPDX identifier
	notices       map[string][]byte // the files with its licence, by name
}

// purl returns the package URL of the module.
func (m *module) purl() string {
	return "pkg:golang/" + m.path + "@" + strings.ReplaceAll(m.version, "+", "%2B")
}

// dirHash returns the hash in go.sum in hexadecimal, as in-toto's dirHash is written.
func (m *module) dirHash() (string, error) {
	b, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(m.sum, "h1:"))
	if err != nil {
		return "", fmt.Errorf("%s: hash %q: %w", m.path, m.sum, err)
	}
	return hex.EncodeToString(b), nil
}

// linked returns the modules that a binary says it consists of: the main module, Go, and the others.
func (r *release) linked(ctx context.Context, binary []byte) ([]*module, error) {
	info, err := buildinfo.Read(bytes.NewReader(binary))
	if err != nil {
		return nil, err
	}
	all := []*module{
		{path: mainModule, version: r.version},
		{path: goModule, version: strings.TrimPrefix(info.GoVersion, "go")},
	}
	for _, d := range info.Deps {
		if d.Replace != nil {
			return nil, fmt.Errorf("%s is replaced by %s: a release has the modules of go.mod", d.Path, d.Replace.Path)
		}
		all = append(all, &module{path: d.Path, version: d.Version, sum: d.Sum})
	}
	for _, m := range all {
		if err := m.readLicense(ctx, r.root); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// merge adds the modules that are not in a list to it.
func merge(all, modules []*module) []*module {
	for _, m := range modules {
		if !slices.ContainsFunc(all, func(o *module) bool { return o.purl() == m.purl() }) {
			all = append(all, m)
		}
	}
	return all
}

// dir returns the directory of the module's files.
func (m *module) dir(ctx context.Context, root string) (string, error) {
	args := []string{"list", "-m", "-f", "{{.Dir}}", m.path}
	switch m.path {
	case mainModule:
		return root, nil
	case goModule:
		args = []string{"env", "GOROOT"}
	}
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir, cmd.Stderr = root, os.Stderr
	cmd.Env = append(os.Environ(), "GOFLAGS=", "GOWORK=off")
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("go %s: %w", strings.Join(args, " "), err)
	}
	return strings.TrimSpace(string(out)), nil
}

// noticeFiles are the names of files to hand on with a module, without what follows a dot.
var noticeFiles = []string{"LICENSE", "LICENCE", "COPYING", "NOTICE", "PATENTS"}

// readLicense reads the files with the module's licence, and identifies it.
func (m *module) readLicense(ctx context.Context, root string) error {
	dir, err := m.dir(ctx, root)
	if err != nil {
		return err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	m.notices = make(map[string][]byte)
	for _, e := range entries {
		name, _, _ := strings.Cut(strings.ToUpper(e.Name()), ".")
		if !e.Type().IsRegular() || !slices.Contains(noticeFiles, name) {
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return err
		}
		m.notices[e.Name()] = text
		if id := identify(text); id != "" {
			m.license = id
		}
	}
	if m.license == "" {
		return fmt.Errorf("%s: no licence in %s that dist knows: read it, and add it to licenses in dist/modules.go",
			m.path, dir)
	}
	return nil
}

// licenses are the licences that modules may have, by words that only their texts contain.
var licenses = []struct{ id, words string }{
	{"BSD-3-Clause", "Neither the name of"},
	{"MIT", "Permission is hereby granted, free of charge"},
}

// identify returns the SPDX identifier of a licence, or "".
func identify(text []byte) string {
	words := strings.Join(strings.Fields(string(text)), " ")
	for _, l := range licenses {
		if strings.Contains(words, l.words) {
			return l.id
		}
	}
	return ""
}

// notices writes the files with the licences of modules.
func (t tree) notices(dir string, modules []*module) error {
	made := map[string]bool{path.Dir(dir): true}
	for _, m := range modules {
		at := path.Join(dir, m.path)
		if err := t.dirs(at, made); err != nil {
			return err
		}
		for _, name := range slices.Sorted(maps.Keys(m.notices)) {
			if err := t.file(path.Join(at, name), 0o644, m.notices[name]); err != nil {
				return err
			}
		}
	}
	return nil
}

// dirs writes a directory and those above it that have not been made.
func (t tree) dirs(dir string, made map[string]bool) error {
	if dir == "." || made[dir] {
		return nil
	}
	made[dir] = true
	if err := t.dirs(path.Dir(dir), made); err != nil {
		return err
	}
	return t.dir(dir)
}
