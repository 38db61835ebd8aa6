package perftest

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// A counter is a file of the port in sysfs (--report-counters).
type counter struct {
	name, file string
	last       uint64 // as of the last report, or of the beginning
}

// setCounters parses names such as counters/port_xmit_data, separated by commas: files below the port's directory.
func (o *Options) setCounters(value string) error {
	for name := range strings.SplitSeq(value, ",") {
		if !filepath.IsLocal(name) {
			return fmt.Errorf("%q is not a file of the port, such as counters/port_xmit_data", name)
		}
		o.Counters = append(o.Counters, name)
	}
	return nil
}

// openCounters reads the counters for the first time. The directory of the devices is that of sysfs, except in tests.
func (o *Options) openCounters(devices string) error {
	for _, name := range o.Counters {
		c := &counter{name: name, file: filepath.Join(devices, o.device, "ports", strconv.Itoa(o.IBPort), name)}
		if _, err := c.advance(); err != nil {
			return &Error{Side: Here, Option: "-W", Err: err}
		}
		o.counters = append(o.counters, c)
	}
	return nil
}

// advance reads the counter, and returns by how much it has increased.
func (c *counter) advance() (uint64, error) {
	text, err := os.ReadFile(c.file)
	if err != nil {
		return 0, err
	}
	now, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%s is not a counter: it contains %.40q", c.file, text)
	}
	increase := now - c.last
	c.last = now
	return increase, nil
}

// printCounters prints by how much the counters have increased since the last report.
func (o *Options) printCounters() {
	if len(o.counters) == 0 {
		return
	}
	for _, c := range o.counters {
		n, err := c.advance()
		if err != nil {
			o.outputErr = cmp.Or(o.outputErr, fmt.Errorf("-W: %w", err))
			return
		}
		o.printf("\t%s=%d\n", c.name, n)
	}
	o.printf("\n")
}
