package bed

import (
	"archive/tar"
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"

	"github.com/ulikunitz/xz"
)

// unpack unpacks a package into a tree, without ownership, set-uid bits, device
// files and what the recipe drops. No maintainer script runs.
func unpack(ctx context.Context, deb string, tree *os.Root, r recipe) error {
	cmd := exec.CommandContext(ctx, "dpkg-deb", "--fsys-tarfile", deb)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	untarErr := untar(out, tree, r)
	if untarErr != nil {
		untarErr = errors.Join(untarErr, cmd.Process.Kill())
		return errors.Join(fmt.Errorf("unpacking %s: %w", deb, untarErr), cmd.Wait())
	}
	if err := cmd.Wait(); err != nil {
		return fmt.Errorf("dpkg-deb --fsys-tarfile %s: %w", deb, err)
	}
	return nil
}

// unpackSource unpacks the upstream archive of a source package, in debs, into usr/src of the tree.
func unpackSource(debs string, tree *os.Root, r recipe) error {
	found, err := filepath.Glob(filepath.Join(debs, "*.orig.tar.xz"))
	if err != nil {
		return err
	}
	if len(found) != 1 {
		return fmt.Errorf("the source package %s has the upstream archives %q: one *.orig.tar.xz was expected", r.Source,
			found)
	}
	f, err := os.Open(found[0])
	if err != nil {
		return err
	}
	defer f.Close()
	in, err := xz.NewReader(bufio.NewReader(f))
	if err != nil {
		return err
	}
	if err := tree.MkdirAll("usr/src", 0o755); err != nil {
		return err
	}
	src, err := tree.OpenRoot("usr/src")
	if err != nil {
		return err
	}
	return errors.Join(untar(in, src, r), src.Close())
}

// untar extracts a whole archive into a tree.
func untar(in io.Reader, tree *os.Root, r recipe) error {
	archive := tar.NewReader(in)
	for {
		h, err := archive.Next()
		if err == io.EOF {
			_, err = io.Copy(io.Discard, in) // read the padding, so that dpkg-deb does not fail
			return err
		}
		if err != nil {
			return err
		}
		name := path.Clean(strings.TrimPrefix(h.Name, "./"))
		if name == "." || r.drops(name, h.Typeflag == tar.TypeDir) {
			continue
		}
		if err := extract(tree, name, h, archive); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
}

// extract creates one entry. os.Root keeps every path inside the tree, whatever
// links it contains.
func extract(tree *os.Root, name string, h *tar.Header, data io.Reader) error {
	mode := os.FileMode(h.Mode) & 0o755
	if h.Typeflag == tar.TypeDir {
		// A directory may exist already, or be a link to one (/lib).
		return tree.MkdirAll(name, 0o755)
	}
	if err := tree.MkdirAll(path.Dir(name), 0o755); err != nil {
		return err
	}
	switch h.Typeflag {
	case tar.TypeReg:
		return writeFile(tree, name, mode|0o400, data)
	case tar.TypeSymlink:
		return replace(tree, name, func() error { return tree.Symlink(h.Linkname, name) })
	case tar.TypeLink:
		target := path.Clean(strings.TrimPrefix(h.Linkname, "./"))
		return replace(tree, name, func() error { return tree.Link(target, name) })
	}
	return nil // devices etc.: the guest has its own
}

// replace creates an entry, replacing one of an earlier package.
func replace(tree *os.Root, name string, create func() error) error {
	if err := tree.Remove(name); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return create()
}

func writeFile(tree *os.Root, name string, mode os.FileMode, data io.Reader) error {
	f, err := tree.OpenFile(name, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, data)
	return errors.Join(err, f.Chmod(mode), f.Close())
}

// drops reports whether a path is not unpacked.
func (r recipe) drops(name string, isDir bool) bool {
	if isDir {
		name += "/"
	}
	return matchesAny(name, r.Drop) && !matchesAny(name, r.Keep)
}

func matchesAny(name string, prefixes []string) bool {
	for _, p := range prefixes {
		if hasPrefix(name, p) {
			return true
		}
	}
	return false
}

// hasPrefix is like strings.HasPrefix, but one "*" in the prefix matches one
// path element.
func hasPrefix(name, prefix string) bool {
	before, after, star := strings.Cut(prefix, "*")
	rest, ok := strings.CutPrefix(name, before)
	if !ok || !star {
		return ok
	}
	_, rest, ok = strings.Cut(rest, "/")
	return ok && strings.HasPrefix("/"+rest, after)
}
