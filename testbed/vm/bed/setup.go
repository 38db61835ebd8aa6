package bed

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Names in a part's directory.
const (
	treeDir      = "tree"            // the unpacked files
	packagesFile = "packages.sha256" // the packages
	filesFile    = "files.sha256"    // every regular file of the tree
	completeFile = ".complete"       // created last
)

// Prefixes of directories that are not (or no longer) parts.
const (
	newPrefix = ".new." // under construction
	oldPrefix = ".old." // replaced by an update, possibly in use by guests
)

// setUp sets up the missing parts, under the lock of the cache.
func (b *Bed) setUp(ctx context.Context, progress io.Writer, update bool) error {
	if err := checkHost(); err != nil {
		return err
	}
	if err := os.MkdirAll(b.cache, 0o700); err != nil {
		return err
	}
	lock, err := lockCache(ctx, b.cache, progress)
	if err != nil {
		return err
	}
	defer lock.Close()
	missing, err := b.missing(update) // another process may have set them up
	if err != nil || len(missing) == 0 {
		return err
	}
	if err := sweep(b.cache); err != nil {
		return err
	}
	s := &setup{bed: b, out: progress, apts: make(map[string]*apt)}
	if s.keyring, err = keyring(); err != nil {
		return err
	}
	if s.mirrors, err = mirrors(ctx); err != nil {
		return err
	}
	for _, p := range missing {
		if err := s.part(ctx, p); err != nil {
			return fmt.Errorf("part %s: %w", p, err)
		}
	}
	if update {
		return prune(b.cache)
	}
	return nil
}

// prune deletes the parts of other recipes, unless a guest uses them.
func prune(cache string) error {
	entries, err := os.ReadDir(cache)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if !outdated(e.Name()) {
			continue
		}
		if _, err := retire(cache, filepath.Join(cache, e.Name())); err != nil {
			return err
		}
	}
	return sweep(cache)
}

// retire renames a part's directory so that it is no longer found but can still
// be used. rename(2), unlike os.Rename, may replace the empty directory that
// reserves the new name.
func retire(cache, dir string) (string, error) {
	old, err := os.MkdirTemp(cache, oldPrefix)
	if err != nil {
		return "", err
	}
	if err := unix.Rename(dir, old); err != nil {
		return "", fmt.Errorf("renaming %s to %s: %w", dir, old, err)
	}
	return old, nil
}

// outdated reports whether a directory's name is that of a part with the hash
// of another recipe.
func outdated(name string) bool {
	at := strings.LastIndexByte(name, '-')
	if at < 0 {
		return false
	}
	r, err := recipeOf(Part(name[:at]))
	return err == nil && name != r.dir(Part(name[:at]))
}

// sweep deletes leftovers of failed set-ups, and old trees that no guest uses
// any more.
func sweep(cache string) error {
	entries, err := os.ReadDir(cache)
	if err != nil {
		return err
	}
	for _, e := range entries {
		dir := filepath.Join(cache, e.Name())
		switch {
		case strings.HasPrefix(e.Name(), newPrefix):
			err = errors.Join(err, os.RemoveAll(dir))
		case strings.HasPrefix(e.Name(), oldPrefix):
			err = errors.Join(err, removeUnused(dir))
		}
	}
	return err
}

// removeUnused deletes a part's directory unless a guest uses it.
func removeUnused(dir string) error {
	f, err := os.Open(filepath.Join(dir, completeFile))
	if errors.Is(err, os.ErrNotExist) {
		return os.RemoveAll(dir)
	}
	if err != nil {
		return err
	}
	defer f.Close()
	if err := flock(f, lockTry); err != nil {
		return nil // in use: a later sweep will find it
	}
	return os.RemoveAll(dir)
}

// setup is one run of the set-up.
type setup struct {
	bed     *Bed
	out     io.Writer
	keyring string
	mirrors []string
	apts    map[string]*apt // by architecture and suites
	shown   time.Time       // when progress was last written
}

// part sets up one part in a temporary directory, which is then renamed.
func (s *setup) part(ctx context.Context, p Part) error {
	started := time.Now()
	r, err := recipeOf(p)
	if err != nil {
		return err
	}
	work, err := os.MkdirTemp(s.bed.cache, newPrefix+string(p)+".")
	if err != nil {
		return err
	}
	if err := s.build(ctx, p, r, work); err != nil {
		return errors.Join(err, os.RemoveAll(work))
	}
	if err := s.publish(work, s.bed.parts[p]); err != nil {
		return errors.Join(err, os.RemoveAll(work))
	}
	s.say(p, "ready after %.1f s", time.Since(started).Seconds())
	return nil
}

// build downloads and unpacks a part into the directory work.
func (s *setup) build(ctx context.Context, p Part, r recipe, work string) error {
	debs := filepath.Join(work, "debs")
	a, err := s.download(ctx, p, r, debs)
	if err != nil && ctx.Err() == nil {
		// The archive may have changed since its index was fetched.
		s.say(p, "retrying with a new index: %v", err)
		delete(s.apts, r.aptKey())
		a, err = s.download(ctx, p, r, debs)
	}
	if err != nil {
		return err
	}
	if err := s.unpackAll(ctx, p, r, debs, work); err != nil {
		return err
	}
	releases, err := a.releases(r)
	if err != nil {
		return err
	}
	for _, name := range releases {
		if err := copyFile(name, filepath.Join(work, filepath.Base(name))); err != nil {
			return err
		}
	}
	return os.RemoveAll(debs)
}

// download downloads the packages of a part to the directory debs.
func (s *setup) download(ctx context.Context, p Part, r recipe, debs string) (*apt, error) {
	a, err := s.apt(ctx, p, r)
	if err != nil {
		return nil, err
	}
	pkgs, err := a.resolve(ctx, r)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(os.RemoveAll(debs), os.Mkdir(debs, 0o700)); err != nil {
		return nil, err
	}
	err = a.download(ctx, debs, pkgs, s.showing(p, "download"))
	if err == nil && r.Source != "" {
		err = a.downloadSource(ctx, debs, r, pkgs, s.showing(p, "download"))
	}
	return a, err
}

// unpackAll unpacks the downloaded packages and writes the lists of hashes.
func (s *setup) unpackAll(ctx context.Context, p Part, r recipe, debs, work string) error {
	files, err := filepath.Glob(filepath.Join(debs, "*.deb"))
	if err != nil {
		return err
	}
	s.say(p, "unpacking %d packages", len(files))
	// base-files has the links /bin, /lib and /lib64.
	slices.SortStableFunc(files, func(x, y string) int { return baseFirst(x) - baseFirst(y) })
	if err := hashFiles(debs, filepath.Join(work, packagesFile)); err != nil {
		return err
	}
	dir := filepath.Join(work, treeDir)
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	tree, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer tree.Close()
	for _, deb := range files {
		if r.Module != "" && isBuilder(deb) {
			continue
		}
		if err := unpack(ctx, deb, tree, r); err != nil {
			return err
		}
	}
	if r.Module != "" {
		s.say(p, "building the module of %s", r.Module)
		if err := r.buildModule(ctx, files, filepath.Join(work, "build"), dir); err != nil {
			return err
		}
	}
	if r.Source != "" {
		if err := unpackSource(debs, tree, r); err != nil {
			return err
		}
	}
	switch r.Fix {
	case "root":
		err = fixRoot(ctx, dir)
	case "preload":
		err = fixPreload(dir)
	}
	if err != nil {
		return err
	}
	return hashFiles(dir, filepath.Join(work, filesFile))
}

func baseFirst(deb string) int {
	if strings.HasPrefix(filepath.Base(deb), "base-files_") {
		return 0
	}
	return 1
}

// apt returns the private apt for a recipe, with new indexes. An index is valid
// for this run only: an old one lists files that have left the archive. Only
// the suites of the recipe are fetched, so that a suite that leaves the mirror
// affects only its own parts.
func (s *setup) apt(ctx context.Context, p Part, r recipe) (*apt, error) {
	key := r.aptKey()
	if a := s.apts[key]; a != nil {
		return a, nil
	}
	a, err := newApt(filepath.Join(s.bed.cache, "apt", key), r)
	if err != nil {
		return nil, err
	}
	var failed error
	for _, mirror := range s.mirrors {
		s.say(p, "package index of %s (%s) from %s", strings.Join(r.suites(), ", "), r.Arch, mirror)
		err := a.update(ctx, mirror, s.keyring, s.showing(p, "index"))
		if err == nil {
			s.apts[key] = a
			return a, nil
		}
		failed = errors.Join(failed, err)
	}
	return nil, fmt.Errorf("no mirror (of %s) gave a verified package index; set %s to another: %w",
		strings.Join(s.mirrors, ", "), EnvMirror, failed)
}

// aptKey returns the key of a recipe's private apt.
func (r recipe) aptKey() string {
	key := r.Arch + "-" + strings.Join(r.suites(), "-")
	if r.Source != "" {
		key += "-source"
	}
	return key
}

// publish renames a finished directory to its final name. After a crash it
// either exists with all its contents, or not at all.
func (s *setup) publish(work, final string) error {
	if err := syncTree(work); err != nil {
		return err
	}
	f, err := os.OpenFile(filepath.Join(work, completeFile), os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		return err
	}
	if !exists(final) {
		return os.Rename(work, final)
	}
	old, err := retire(s.bed.cache, final) // an update
	if err != nil {
		return err
	}
	if err := os.Rename(work, final); err != nil {
		return err
	}
	return removeUnused(old)
}

// say writes a line of progress.
func (s *setup) say(p Part, format string, args ...any) {
	s.shown = time.Now()
	fmt.Fprintf(s.out, "bed: %s: %s\n", p, fmt.Sprintf(format, args...))
}

// showing returns a function that writes apt's progress, a line every few
// seconds.
func (s *setup) showing(p Part, what string) func(int, string) {
	return func(percent int, text string) {
		if time.Since(s.shown) > 3*time.Second {
			s.say(p, "%s %d %% (%s)", what, percent, text)
		}
	}
}
