package ether

import (
	"unsafe"

	"github.com/goverbs/goverbs/internal/race"
	"github.com/goverbs/goverbs/uverbs"
)

// releasePost tells the race detector that a post to a WQ precedes its completion, which any CQ of
// the Context may return. It is called in programs built with the race detector only.
func releasePost(c *uverbs.Context) { race.Release(unsafe.Pointer(c)) }
