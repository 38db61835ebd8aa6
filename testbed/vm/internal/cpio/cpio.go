// Package cpio writes cpio archives in the "newc" format, in which the kernel
// expects its initramfs
// (Documentation/driver-api/early-userspace/buffer-format.rst).
package cpio

import (
	"errors"
	"fmt"
	"io"
	"strings"
)

// File type bits of a mode, as in stat(2).
const (
	typeDir  = 0o040000
	typeReg  = 0o100000
	typeLink = 0o120000
	typeChar = 0o020000
)

const trailer = "TRAILER!!!"

// A Writer writes one archive. All entries are owned by root, and times are
// zero, so that the same contents give the same bytes. After the first error,
// all calls and Close return it.
type Writer struct {
	w    io.Writer
	ino  uint32
	dirs map[string]bool
	err  error
}

// NewWriter returns a Writer that writes to w.
func NewWriter(w io.Writer) *Writer {
	return &Writer{w: w, dirs: make(map[string]bool)}
}

// Dir adds a directory and its parents.
func (w *Writer) Dir(name string) error {
	name = clean(name)
	w.parents(name)
	if !w.dirs[name] && name != "" {
		w.dirs[name] = true
		w.entry(name, typeDir|0o755, nil, 0, 0)
	}
	return w.err
}

// File adds a regular file and its parent directories. mode has the permission
// bits.
func (w *Writer) File(name string, mode uint32, data []byte) error {
	name = clean(name)
	w.parents(name)
	w.entry(name, typeReg|mode&0o777, data, 0, 0)
	return w.err
}

// Symlink adds a symbolic link.
func (w *Writer) Symlink(name, target string) error {
	name = clean(name)
	w.parents(name)
	w.entry(name, typeLink|0o777, []byte(target), 0, 0)
	return w.err
}

// CharDevice adds a character device.
func (w *Writer) CharDevice(name string, mode, major, minor uint32) error {
	name = clean(name)
	w.parents(name)
	w.entry(name, typeChar|mode&0o777, nil, major, minor)
	return w.err
}

// Close ends the archive. It does not close the underlying writer.
func (w *Writer) Close() error {
	w.entry(trailer, 0, nil, 0, 0)
	if w.err == nil {
		w.err = errors.New("cpio: the archive is closed")
		return nil
	}
	return w.err
}

func (w *Writer) parents(name string) {
	if i := strings.LastIndexByte(name, '/'); i > 0 {
		// An error is kept in w.err.
		w.err = errors.Join(w.err, w.Dir(name[:i]))
	}
}

// entry writes a header (14 fields of 8 hexadecimal digits), the name and the
// data; name and data are each padded to four bytes.
func (w *Writer) entry(name string, mode uint32, data []byte, major, minor uint32) {
	if w.err != nil {
		return
	}
	if int64(len(data)) > 1<<32-1 {
		w.err = fmt.Errorf("cpio: %s is too large (%d bytes)", name, len(data))
		return
	}
	w.ino++
	ino, links := w.ino, 1
	if name == trailer {
		ino = 0
	}
	head := fmt.Sprintf("070701%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%s\x00",
		ino, mode, 0, 0, links, 0, len(data), 0, 0, major, minor, len(name)+1, 0, name)
	w.write([]byte(head))
	w.pad(len(head))
	w.write(data)
	w.pad(len(data))
}

func (w *Writer) pad(n int) {
	w.write(make([]byte, -n&3))
}

func (w *Writer) write(b []byte) {
	if w.err == nil && len(b) > 0 {
		_, w.err = w.w.Write(b)
	}
}

func clean(name string) string { return strings.Trim(name, "/") }
