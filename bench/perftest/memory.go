package perftest

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/goverbs/goverbs/uverbs"
)

// timestampBytes returns the size of the memory for the times of the messages.
func (o *Options) timestampBytes() uint64 {
	n := uint64(o.Iters) * 8
	waits := !o.active() && !o.Bidirectional && (o.Bandwidth || o.fetches())
	switch {
	case o.Duration > 0 || o.Bandwidth && o.NoPeak || waits:
		return 0
	case o.Bandwidth:
		return 2 * n * uint64(o.QPs)
	case o.Unsorted:
		return 2 * n
	}
	return n
}

// bufferBytes returns the size of the memory for messages. The MTU, which limits
// datagrams, is not known yet.
func (o *Options) bufferBytes() uint64 {
	p := *o
	if p.Type == uverbs.UD {
		p.Size = min(p.Size, uverbs.MTU4096.Bytes())
	}
	return 2 * uint64(p.QPs) * uint64(p.stride())
}

// checkMemory returns an error if the test needs more memory than is available. Linux
// would grant the allocation and kill processes later.
func (o *Options) checkMemory(file string) error {
	need, buffers := o.timestampBytes(), o.bufferBytes()
	if o.HugePages { // they are not part of the available memory
		if err := o.checkHugePages(file, o.regions(), int(buffers)/o.regions()); err != nil {
			return err
		}
		buffers = 0
	}
	if need+buffers < 16<<20 {
		return nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	free, err := meminfo(string(text), "MemAvailable") // that programs can allocate without swapping
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	free <<= 10
	switch {
	case need+buffers <= free:
		return nil
	case buffers > free:
		return here("-s", "the buffers take %d MiB for %d queue pairs, and %d MiB are free: choose a smaller -s or -q",
			buffers>>20, o.QPs, free>>20)
	case o.Bandwidth:
		return here("-N", "the times of %d messages of %d queue pairs, which the peak needs, take %d MiB, and %d MiB are "+
			"free: give -N, or a smaller -n or -q",
			o.Iters, o.QPs, need>>20, free>>20)
	}
	return here("-n", "the times of %d messages take %d MiB, and %d MiB are free: choose a smaller -n, or a "+
		"duration with -D", o.Iters, need>>20, free>>20)
}

// meminfo returns the number of a field of /proc/meminfo, in KiB or in pages.
func meminfo(text, field string) (n uint64, err error) {
	for line := range strings.Lines(text) {
		if _, err := fmt.Sscanf(line, field+": %d", &n); err == nil {
			return n, nil
		}
	}
	return 0, errors.New("it has no " + field)
}
