package bed

import (
	"fmt"
	"io"
	"path/filepath"
	"strings"
)

// List writes a list of the parts, and whether they are set up.
func List(w io.Writer) error {
	cache, err := CacheDir()
	if err != nil {
		return err
	}
	b := &Bed{cache: cache, parts: make(map[Part]string)}
	for p, r := range recipes() {
		b.parts[p] = filepath.Join(cache, r.dir(p))
	}
	for _, p := range Parts() {
		state := "not set up"
		if exists(filepath.Join(b.parts[p], completeFile)) {
			state = b.parts[p]
		}
		if k, err := b.Kernel(p); err == nil && strings.HasPrefix(string(p), "kernel-") {
			state += " (" + k.Release + ")"
		}
		if _, err := fmt.Fprintf(w, "%-18s %s\n", p, state); err != nil {
			return err
		}
	}
	return nil
}
