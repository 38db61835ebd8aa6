package agent

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"golang.org/x/sys/unix"
)

// dmesg writes the kernel's log. Each read of /dev/kmsg returns one record
// (Documentation/ABI/testing/dev-kmsg).
func dmesg(w io.Writer) error {
	fd, err := unix.Open("/dev/kmsg", unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	buf := make([]byte, 8192)
	for {
		n, err := unix.Read(fd, buf)
		switch {
		case errors.Is(err, unix.EAGAIN):
			return unix.Close(fd) // everything was read
		case errors.Is(err, unix.EPIPE):
			continue // the oldest was overwritten meanwhile
		case err != nil:
			return errors.Join(err, unix.Close(fd))
		}
		if _, err := fmt.Fprintln(w, kmsgText(string(buf[:n]))); err != nil {
			return errors.Join(err, unix.Close(fd))
		}
	}
}

// kmsgText returns the text of a record "priority,sequence,time,flags;text
//
//	KEY=value
//
// ".
func kmsgText(record string) string {
	head, rest, _ := strings.Cut(record, ";")
	text, _, _ := strings.Cut(rest, "\n")
	if fields := strings.Split(head, ","); len(fields) > 2 {
		if stamp := fields[2]; len(stamp) > 6 {
			return fmt.Sprintf("[%5s.%s] %s", stamp[:len(stamp)-6], stamp[len(stamp)-6:], text)
		}
	}
	return "[    0.000000] " + text
}
