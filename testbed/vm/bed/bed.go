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

// Variables that steer the bed.
const (
	// EnvCache names the directory of the bed, in place of
	// ${XDG_CACHE_HOME:-~/.cache}/goverbs-bed.
	EnvCache = "GOVERBS_BED_CACHE"
	// EnvMirror names Debian mirrors, separated by spaces, in place of those
	// that the machine's apt is configured with. Each part comes from the
	// first that has its suites.
	EnvMirror = "GOVERBS_BED_MIRROR"
)

// A Bed is a set of parts that are ready for use.
type Bed struct {
	cache string
	parts map[Part]string // directory of each part
}

// Ensure makes sure that the parts (all, when none is named) are in the cache,
// and sets up those that are missing. Where nothing is missing it neither
// takes a lock nor touches the network. What happens, which may take minutes,
// is told to progress (nil for nobody).
func Ensure(ctx context.Context, progress io.Writer, parts ...Part) (*Bed, error) {
	return open(ctx, progress, false, parts)
}

// Update sets the parts (all, when none is named) up anew, with the newest
// packages that the archive has for them. Guests that run keep the trees that
// they were started with.
func Update(ctx context.Context, progress io.Writer, parts ...Part) (*Bed, error) {
	return open(ctx, progress, true, parts)
}

func open(ctx context.Context, progress io.Writer, update bool, parts []Part) (*Bed, error) {
	if progress == nil {
		progress = io.Discard
	}
	if len(parts) == 0 {
		parts = Parts()
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

// CacheDir is the directory that all parts lie in.
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

// missing lists the parts that have to be set up, in the order of Parts.
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

// Cache is the directory that holds the bed.
func (b *Bed) Cache() string { return b.cache }

// Has tells whether the bed was opened with a part.
func (b *Bed) Has(p Part) bool { return b.parts[p] != "" }

// Tree is the unpacked tree of a part that the bed was opened with.
func (b *Bed) Tree(p Part) (string, error) {
	if !b.Has(p) {
		return "", fmt.Errorf("bed: part %s was not asked for: name it in the call of Ensure", p)
	}
	return filepath.Join(b.parts[p], treeDir), nil
}

// InUse opens the file that keeps a part's tree from being deleted by an
// update. The tree stays for as long as the file, or a copy of it in another
// process, is open.
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

// PartList lists the parts of this bed.
func (b *Bed) PartList() []Part {
	return slices.DeleteFunc(Parts(), func(p Part) bool { return !b.Has(p) })
}
