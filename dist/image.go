package main

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// imageName is the name under which containerd imports the image.
const imageName = "localhost/goverbs"

// image writes the image of all architectures, as an archive of an OCI layout.
func (r *release) image(architectures []string, binaries map[string][]byte, modules []*module) error {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, arch := range architectures {
		img, err := r.imageFor(arch, binaries[arch], modules)
		if err != nil {
			return fmt.Errorf("image for %s: %w", arch, err)
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: img, Descriptor: v1.Descriptor{
			Platform: &v1.Platform{OS: "linux", Architecture: arch}}})
	}
	dir, err := os.MkdirTemp("", "dist")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	p, err := layout.Write(dir, empty.Index)
	if err != nil {
		return err
	}
	names := map[string]string{
		"org.opencontainers.image.ref.name": r.version,
		"io.containerd.image.name":          imageName + ":" + r.version,
	}
	if err := p.AppendIndex(index, layout.WithAnnotations(names)); err != nil {
		return err
	}
	data, err := pack(dir)
	if err != nil {
		return err
	}
	return r.write(fmt.Sprintf("goverbs-%s-oci.tar", r.version), data)
}

// imageFor returns the image for one architecture: the program and its links in /bin, and licences in /licenses.
func (r *release) imageFor(arch string, binary []byte, modules []*module) (v1.Image, error) {
	var b bytes.Buffer
	t := tree{tar.NewWriter(&b)}
	if err := t.programs("bin", binary); err != nil {
		return nil, err
	}
	if err := t.notices("licenses", modules); err != nil {
		return nil, err
	}
	if err := t.Close(); err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(b.Bytes())), nil
	}, tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return nil, err
	}
	img, err := mutate.AppendLayers(mutate.MediaType(mutate.ConfigMediaType(empty.Image, types.OCIConfigJSON),
		types.OCIManifestSchema1), layer)
	if err != nil {
		return nil, err
	}
	c, err := img.ConfigFile()
	if err != nil {
		return nil, err
	}
	return mutate.ConfigFile(img, r.config(c, arch, modules))
}

// config completes an image's configuration: without arguments, a container runs doctor.
func (r *release) config(base *v1.ConfigFile, arch string, modules []*module) *v1.ConfigFile {
	var all []string
	for _, m := range modules {
		all = append(all, m.license)
	}
	slices.Sort(all)
	c := base.DeepCopy()
	c.OS, c.Architecture, c.Created = "linux", arch, v1.Time{Time: epoch}
	c.Config = v1.Config{
		Entrypoint: []string{"/bin/goverbs"},
		Cmd:        []string{"doctor"},
		Env:        []string{"PATH=/bin"},
		Labels: map[string]string{
			"org.opencontainers.image.source":   "https://github.com/goverbs/goverbs",
			"org.opencontainers.image.licenses": strings.Join(slices.Compact(all), " AND "),
			"org.opencontainers.image.revision": r.commit,
			"org.opencontainers.image.version":  r.version,
		},
	}
	for i := range c.History {
		c.History[i].Created = v1.Time{Time: epoch}
	}
	return c
}

// pack returns a tar archive of the files in a directory, in the order of their names.
func pack(root string) ([]byte, error) {
	var b bytes.Buffer
	t := tree{tar.NewWriter(&b)}
	err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		rel, relErr := filepath.Rel(root, name)
		switch {
		case err != nil || relErr != nil || rel == ".":
			return err
		case d.IsDir():
			return t.dir(filepath.ToSlash(rel))
		}
		data, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		return t.file(filepath.ToSlash(rel), 0o644, data)
	})
	if err != nil {
		return nil, err
	}
	err = t.Close() // writes to b
	return b.Bytes(), err
}
