package rstream

import (
	"fmt"
	"io"
	"time"
)

// A test is one measurement.
type test struct {
	name      string
	size      int // bytes of a transfer
	transfers int // of each side in an iteration
	iters     int
}

// A series has the tests on one connection.
type series struct {
	optimization optimization
	tests        []test
}

// optimization is what a connection is for.
type optimization int

// The optimizations.
const (
	mixed optimization = iota
	latency
	bandwidth
)

// Sizes are 64 bytes to 6 MiB: powers of two, and those and a half.
const (
	minSize = 64
	maxSize = 6 << 20
)

// series returns what to run.
func (o *options) series() []series {
	if o.custom {
		return []series{{mixed, []test{{"custom", o.size, o.transfers, o.iters}}}}
	}
	lat, bw := series{optimization: latency}, series{optimization: bandwidth}
	for size := minSize; size <= maxSize/3*2; size *= 2 {
		o.addTests(&lat, &bw, size, size == 64 || size == 4<<10 || size == 64<<10 || size == 1<<20)
		if size > minSize {
			o.addTests(&lat, &bw, size+size/2, false)
		}
	}
	return []series{lat, bw}
}

// addTests adds the tests of a size, which is among the usual ones or not.
func (o *options) addTests(lat, bw *series, size int, usual bool) {
	if !usual && !o.all {
		return
	}
	// The C program has room for four characters of a size in a name.
	name := fmt.Sprintf("%.4s", sizeText(int64(size)))
	lat.tests = append(lat.tests, test{name + "_lat", size, 1, countOf(size)})
	bw.tests = append(bw.tests, test{name + "_bw", size, countOf(size), 1})
}

// countOf returns how many transfers of a size make a test.
func countOf(size int) int {
	switch {
	case size >= 1<<20:
		return 100
	case size >= 1<<16:
		return 1000
	case size >= 1<<10:
		return 10000
	}
	return 100000
}

// sizeText returns a number of bytes in short: one digit after the point if there is one before.
func sizeText(n int64) string {
	base, unit := int64(1), ""
	switch {
	case n >= 1<<30:
		base, unit = 1<<30, "g"
	case n >= 1<<20:
		base, unit = 1<<20, "m"
	case n >= 1<<10:
		base, unit = 1<<10, "k"
	}
	if tenth := n % base * 10 / base; n/base < 10 && tenth != 0 {
		return fmt.Sprintf("%d.%d%s", n/base, tenth, unit)
	}
	return fmt.Sprintf("%d%s", n/base, unit)
}

// countText returns a number in short.
func countText(n int) string {
	switch {
	case n >= 1e9:
		return fmt.Sprintf("%db", n/1e9)
	case n >= 1e6:
		return fmt.Sprintf("%dm", n/1e6)
	case n >= 1e3:
		return fmt.Sprintf("%dk", n/1e3)
	}
	return fmt.Sprint(n)
}

// writeHeader writes the names of the columns.
func writeHeader(out io.Writer) error {
	_, err := fmt.Fprintf(out, "%-10s%-8s%-8s%-8s%-8s%8s %10s%13s\n",
		"name", "bytes", "xfers", "iters", "total", "time", "Gb/sec", "usec/xfer")
	return err
}

// write writes the line of a test that took d.
func (t test) write(out io.Writer, d time.Duration) error {
	usec := float64(d.Nanoseconds()) / 1000
	bytes := 2 * int64(t.iters) * int64(t.transfers) * int64(t.size)
	_, err := fmt.Fprintf(out, "%-10s%-8s%-8s%-8s%-8s%8.2fs%10.2f%11.2f\n", t.name, sizeText(int64(t.size)),
		countText(t.transfers), countText(t.iters), sizeText(bytes), usec/1e6, float64(bytes*8)/(1000*usec),
		usec/float64(t.iters)/float64(2*t.transfers))
	return err
}
