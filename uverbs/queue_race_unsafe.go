package uverbs

import (
	"unsafe"

	"github.com/goverbs/goverbs/internal/race"
)

// The race detector does not see that a post precedes its completion, because the device is between
// them. These functions tell it. They are called in programs built with the race detector only.

// releasePost precedes a post to a queue whose completions go to the CQ x or, if the queue belongs to
// no QP, to any CQ of the Context x.
func releasePost[T any](x *T) { race.Release(unsafe.Pointer(x)) }

// acquirePosts follows a poll of the CQ x, or of a CQ of the Context x, that has returned completions.
func acquirePosts[T any](x *T) { race.Acquire(unsafe.Pointer(x)) }
