package bed

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Verify checks every file of the bed's parts against the hashes from set-up,
// and the archive's signature of the release files with which the packages were
// verified.
func (b *Bed) Verify(ctx context.Context) error {
	var failed error
	for _, p := range b.PartList() {
		if err := b.verifyPart(ctx, b.parts[p]); err != nil {
			failed = errors.Join(failed, fmt.Errorf("part %s: %w", p, err))
		}
	}
	if failed != nil {
		return fmt.Errorf("the test bed is damaged; delete %s to set it up again: %w", b.cache, failed)
	}
	return nil
}

func (b *Bed) verifyPart(ctx context.Context, dir string) error {
	keys, err := keyring()
	if err != nil {
		return err
	}
	releases, err := filepath.Glob(filepath.Join(dir, "*InRelease"))
	if err != nil {
		return err
	}
	if len(releases) == 0 {
		return fmt.Errorf("no signed InRelease in %s", dir)
	}
	if _, err := exec.LookPath("gpgv"); err != nil {
		return fmt.Errorf("signatures are checked with gpgv: run `apt-get install gpgv` as root: %w", err)
	}
	for _, name := range releases {
		if _, err := (step{argv: []string{"gpgv", "--quiet", "--keyring", keys, name}}).run(ctx); err != nil {
			return err
		}
	}
	return verifyFiles(ctx, filepath.Join(dir, treeDir), filepath.Join(dir, filesFile))
}

// verifyFiles checks that a tree has exactly the files of its list, with the
// same contents.
func verifyFiles(ctx context.Context, tree, list string) error {
	want, err := readSums(list)
	if err != nil {
		return err
	}
	var failed error
	err = eachFile(tree, func(rel string) error {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		sum, err := hashFile(filepath.Join(tree, rel))
		switch {
		case err != nil:
			return err
		case want[rel] == "":
			failed = errors.Join(failed, fmt.Errorf("%s is not in the list", rel))
		case want[rel] != sum:
			failed = errors.Join(failed, fmt.Errorf("%s has changed", rel))
		}
		delete(want, rel)
		return nil
	})
	for rel := range want {
		failed = errors.Join(failed, fmt.Errorf("%s is missing", rel))
	}
	return errors.Join(err, failed)
}

// readSums parses a file in the format of sha256sum: path to hash.
func readSums(name string) (map[string]string, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	sums := make(map[string]string)
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		sum, path, ok := strings.Cut(lines.Text(), "  ")
		if !ok || len(sum) != 64 {
			return nil, fmt.Errorf("%s: not a line of sha256sum: %q", name, lines.Text())
		}
		sums[path] = sum
	}
	return sums, lines.Err()
}
