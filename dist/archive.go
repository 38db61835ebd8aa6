package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// epoch is the time of every file.
var epoch = time.Unix(0, 0).UTC()

// tree writes files to a tar archive, with fixed owners and times.
type tree struct {
	*tar.Writer
}

func (t tree) file(name string, mode int64, data []byte) error {
	h := &tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: mode, Size: int64(len(data)), ModTime: epoch,
		Format: tar.FormatUSTAR}
	if err := t.WriteHeader(h); err != nil {
		return err
	}
	_, err := t.Write(data)
	return err
}

func (t tree) link(name, target string) error {
	return t.WriteHeader(&tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: target, Mode: 0o777, ModTime: epoch,
		Format: tar.FormatUSTAR})
}

func (t tree) dir(name string) error {
	return t.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: name + "/", Mode: 0o755, ModTime: epoch,
		Format: tar.FormatUSTAR})
}

// programs writes the program, and the links to it.
func (t tree) programs(dir string, binary []byte) error {
	if err := t.dir(dir); err != nil {
		return err
	}
	if err := t.file(path.Join(dir, "goverbs"), 0o755, binary); err != nil {
		return err
	}
	for _, name := range programs {
		if err := t.link(path.Join(dir, name), "goverbs"); err != nil {
			return err
		}
	}
	return nil
}

// name returns how the names of the files for an architecture begin.
func (r *release) name(arch string) string {
	return fmt.Sprintf("goverbs-%s-linux-%s", r.version, arch)
}

// archive writes the archive for an architecture.
func (r *release) archive(arch string, binary []byte, modules []*module) error {
	name := r.name(arch)
	var b bytes.Buffer
	z, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err != nil {
		return err
	}
	t := tree{tar.NewWriter(z)}
	if err := t.dir(name); err != nil {
		return err
	}
	if err := t.programs(name+"/bin", binary); err != nil {
		return err
	}
	for _, doc := range documents {
		data, err := os.ReadFile(filepath.Join(r.root, doc))
		if err != nil {
			return err
		}
		if err := t.file(path.Join(name, path.Base(doc)), 0o644, data); err != nil {
			return err
		}
	}
	if err := t.notices(name+"/licenses", modules); err != nil {
		return err
	}
	if err := t.Close(); err != nil {
		return err
	}
	if err := z.Close(); err != nil {
		return err
	}
	return r.write(name+".tar.gz", b.Bytes())
}

// write writes a file of the release.
func (r *release) write(name string, data []byte) error {
	r.files = append(r.files, name)
	return os.WriteFile(filepath.Join(r.out, name), data, 0o644)
}

// checksums writes the file that sha256sum -c reads.
func (r *release) checksums() error {
	var b strings.Builder
	for _, name := range slices.Sorted(slices.Values(r.files)) {
		data, err := os.ReadFile(filepath.Join(r.out, name))
		if err != nil {
			return err
		}
		fmt.Fprintf(&b, "%x  %s\n", sha256.Sum256(data), name)
	}
	fmt.Print(b.String())
	return os.WriteFile(filepath.Join(r.out, "SHA256SUMS"), []byte(b.String()), 0o644)
}
