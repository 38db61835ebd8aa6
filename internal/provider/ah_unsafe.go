package provider

import (
	"unsafe"

	"github.com/goverbs/goverbs/internal/driver"
	"github.com/goverbs/goverbs/uverbs"
)

// AHOf returns the part of ah that providers may use, or nil if ah is nil. It is the
// first field of the struct, which a test of uverbs checks.
func AHOf(ah *uverbs.AH) *driver.AH { return (*driver.AH)(unsafe.Pointer(ah)) }
