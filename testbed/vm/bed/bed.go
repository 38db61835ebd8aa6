package bed

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

// Environment variables of the bed.
const (
	// EnvCache is the directory of the bed, instead of
	// ${XDG_CACHE_HOME:-~/.cache}/goverbs-bed.
	EnvCache = "GOVERBS_BED_CACHE"
	// EnvMirror has Debian mirrors, separated by spaces, instead of those in
	// the machine's apt configuration. Each part is downloaded from the first
	// one that has its suites.
	EnvMirror = "GOVERBS_BED_MIRROR"
)

// A Bed is a set of parts that are ready for use.
type Bed struct {
	cache string
	parts map[Part]string // directory of each part
}

// Ensure sets up the parts (all but Fabric, Apps and Kernel612SIW, if none is given) that are not in the cache.
// If no part is missing it takes no lock and does not use the network. Set-up
// may take minutes; progress is written to progress, which may be nil.
func Ensure(ctx context.Context, progress io.Writer, parts ...Part) (*Bed, error) {
	return open(ctx, progress, false, parts)
}

// Update sets up the parts (all but Fabric, Apps and Kernel612SIW, if none is given) again, with the newest
// packages of the archive. Running guests keep their trees.
func Update(ctx context.Context, progress io.Writer, parts ...Part) (*Bed, error) {
	return open(ctx, progress, true, parts)
}

func open(ctx context.Context, progress io.Writer, update bool, parts []Part) (*Bed, error) {
	if progress == nil {
		progress = io.Discard
	}
	if len(parts) == 0 {
		parts = usual()
	}
	cache, err := CacheDir()
	if err != nil {
		return nil, err
	}
	b := &Bed{cache: cache, parts: make(map[Part]string)}
	for _, p := range parts {
		r, err := recipeOf(p)
		if err != nil {
			return nil, err
		}
		b.parts[p] = filepath.Join(cache, r.dir(p))
	}
	missing, err := b.missing(update)
	if err != nil || len(missing) == 0 {
		return b, err
	}
	if err := b.setUp(ctx, progress, update); err != nil {
		return nil, fmt.Errorf("setting up the test bed in %s: %w", cache, err)
	}
	return b, nil
}

// CacheDir returns the directory of all parts.
func CacheDir() (string, error) {
	dir := os.Getenv(EnvCache)
	if dir == "" {
		base, err := os.UserCacheDir()
		if err != nil {
			return "", fmt.Errorf("bed: no cache directory (set %s): %w", EnvCache, err)
		}
		dir = filepath.Join(base, "goverbs-bed")
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", fmt.Errorf("bed: %s: %w", EnvCache, err)
	}
	return dir, nil
}

// missing returns the parts that have to be set up, in the order of Parts.
func (b *Bed) missing(update bool) ([]Part, error) {
	var missing []Part
	for _, p := range Parts() {
		dir, wanted := b.parts[p]
		if !wanted {
			continue
		}
		_, err := os.Stat(filepath.Join(dir, completeFile))
		switch {
		case err != nil && !errors.Is(err, fs.ErrNotExist):
			return nil, fmt.Errorf("bed: part %s: %w", p, err)
		case err != nil || update:
			missing = append(missing, p)
		}
	}
	return missing, nil
}

// Cache returns the directory of the bed.
func (b *Bed) Cache() string { return b.cache }

// Has reports whether the bed was opened with a part.
func (b *Bed) Has(p Part) bool { return b.parts[p] != "" }

// Tree returns the unpacked tree of a part with which the bed was opened.
func (b *Bed) Tree(p Part) (string, error) {
	if !b.Has(p) {
		return "", fmt.Errorf("bed: the bed was opened without part %s: pass it to Ensure", p)
	}
	return filepath.Join(b.parts[p], treeDir), nil
}

// InUse opens the file that protects a part's tree from deletion by an update.
// The tree is kept as long as the file, or a copy of it in another process, is
// open.
func (b *Bed) InUse(p Part) (*os.File, error) {
	if _, err := b.Tree(p); err != nil {
		return nil, err
	}
	f, err := os.Open(filepath.Join(b.parts[p], completeFile))
	if err != nil {
		return nil, fmt.Errorf("bed: part %s: %w", p, err)
	}
	if err := flock(f, lockShared); err != nil {
		return nil, errors.Join(fmt.Errorf("bed: part %s: %w", p, err), f.Close())
	}
	return f, nil
}

// PartList returns the parts of this bed.
func (b *Bed) PartList() []Part {
	return slices.DeleteFunc(Parts(), func(p Part) bool { return !b.Has(p) })
}
