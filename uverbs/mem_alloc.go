//go:build !race

package uverbs

// alloc allocates n zero bytes in pages that hold nothing else, for [PD.Alloc].
func (mem *backing) alloc(n int) error {
	b, err := mapPages(n)
	mem.buf, mem.own = b, true
	return err
}
