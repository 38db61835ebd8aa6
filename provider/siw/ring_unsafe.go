package siw

import (
	"unsafe"

	"github.com/goverbs/goverbs/internal/provider"
)

// wordsOf returns the first n words of a mapping, which is page aligned and has at least as many.
func wordsOf(m *provider.Mapping, n int) []uint64 {
	return unsafe.Slice((*uint64)(unsafe.Pointer(&m.Bytes()[:8*n][0])), n)
}

// bytesOf returns the bytes of words.
func bytesOf(words []uint64) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(&words[0])), 8*len(words))
}
