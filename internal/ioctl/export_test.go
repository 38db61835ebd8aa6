package ioctl

import (
	"io"
	"strings"

	"github.com/goverbs/goverbs/internal/uapi"
)

// ArenaSize and MaxAttrs are the limits of a Cmd.
const (
	ArenaSize = arenaSize
	MaxAttrs  = maxAttrs
)

// Trace turns the trace on or off and sends it to w. Devices created until restore is called are
// traced.
func Trace(on bool, w io.Writer) (restore func()) {
	traceMu.Lock()
	defer traceMu.Unlock()
	wasOn, was := tracing, traceTo
	tracing, traceTo = on, w
	return func() {
		traceMu.Lock()
		defer traceMu.Unlock()
		tracing, traceTo = wasOn, was
	}
}

// A Named is an attribute that the trace has a name for.
type Named struct {
	Object, Method, Attr uint16
	Name                 string
}

// Schema lists the names, without those of the driver's input and reply.
func Schema() (all []Named) {
	for key, m := range schema {
		for first, list := range map[int]string{0: m.attrs, uapi.UVERBS_ATTR_UHW_IN: m.driver} {
			for i, name := range strings.Fields(list) {
				if name != "-" && name != "UHW_IN" && name != "UHW_OUT" {
					all = append(all, Named{key.object, key.method, uint16(first + i), m.name + " " + name})
				}
			}
		}
	}
	return all
}

// Optional marks the attribute added last as one that an older kernel may ignore.
func (c *Cmd) Optional() { c.attrs[c.n-1].Flags = 0 }
