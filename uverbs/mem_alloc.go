//go:build !race

package uverbs

// alloc allocates n zero bytes in pages that hold nothing else, for [PD.Alloc].
func (mem *backing) alloc(n int) error {
	b, err := mapPages(n)
	mem.buf, mem.own = b, true
	return err
}

// allocReused allocates at least n bytes for verbs.AllocReused.
func (mem *backing) allocReused(n int) error {
	b, err := takeSpare(reusedSize(n))
	mem.buf, mem.reused = b, true
	return err
}
