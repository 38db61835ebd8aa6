//go:build vm

package dist

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// A descriptor refers to a blob of an OCI layout: see the OCI image specification.
type descriptor struct {
	Digest   string
	Platform struct{ Architecture string }
}

// A manifest is an image index or the manifest of an image.
type manifest struct {
	Manifests, Layers []descriptor
}

// unpackImage writes the files of an image for amd64 to a directory, as a container runtime does. The image is an
// archive of an OCI layout.
func unpackImage(archive, dir string) error {
	b, err := os.ReadFile(archive)
	if err != nil {
		return err
	}
	blobs := make(map[string][]byte)
	err = eachFile(bytes.NewReader(b), func(h *tar.Header, r io.Reader) error {
		data, err := io.ReadAll(r)
		blobs[h.Name] = data
		return err
	})
	if err != nil {
		return err
	}
	m, err := parse(blobs, "index.json")
	for err == nil && len(m.Layers) == 0 {
		m, err = child(blobs, m)
	}
	if err != nil {
		return err
	}
	for _, l := range m.Layers {
		if err := unpackLayer(blobs[blob(l)], dir); err != nil {
			return err
		}
	}
	return nil
}

// blob returns the file of a blob.
func blob(d descriptor) string { return "blobs/" + strings.Replace(d.Digest, ":", "/", 1) }

func parse(blobs map[string][]byte, name string) (m manifest, err error) {
	if err := json.Unmarshal(blobs[name], &m); err != nil {
		return m, fmt.Errorf("%s: %w", name, err)
	}
	return m, nil
}

// child returns what an index refers to: the image for amd64, or another index.
func child(blobs map[string][]byte, m manifest) (manifest, error) {
	for _, d := range m.Manifests {
		if a := d.Platform.Architecture; a == "amd64" || a == "" {
			return parse(blobs, blob(d))
		}
	}
	return manifest{}, errors.New("no image for amd64")
}

func unpackLayer(layer []byte, dir string) error {
	z, err := gzip.NewReader(bytes.NewReader(layer))
	if err != nil {
		return err
	}
	return eachFile(z, func(h *tar.Header, r io.Reader) error {
		name := filepath.Join(dir, filepath.FromSlash(h.Name))
		switch h.Typeflag {
		case tar.TypeDir:
			return os.MkdirAll(name, 0o755)
		case tar.TypeSymlink:
			return os.Symlink(h.Linkname, name)
		}
		b, err := io.ReadAll(r)
		if err != nil {
			return err
		}
		return os.WriteFile(name, b, h.FileInfo().Mode())
	})
}

// eachFile calls f for each entry of a tar archive.
func eachFile(r io.Reader, f func(h *tar.Header, r io.Reader) error) error {
	for a := tar.NewReader(r); ; {
		h, err := a.Next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		if err := f(h, a); err != nil {
			return err
		}
	}
}
