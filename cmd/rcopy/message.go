package main

import (
	"encoding/binary"
	"fmt"
	"io"
	"syscall"
)

// A command is what the client asks for. The reply has the same command with reply set.
type command uint8

const (
	cmdOpen  command = 1 // data is the file's mode; followed by the path
	cmdClose command = 2
	cmdWrite command = 3 // followed by the size; the file itself comes next
	reply    command = 0x80
)

// A header precedes each message, in the byte order of the machines, which must be the same.
type header struct {
	command command
	length  uint16 // of the message, with the header
	data    uint32 // of a reply: 0 or an errno
	id      uint64
}

const (
	headerLen = 16
	sizeLen   = 8
	maxPath   = 4096 // with the 0 at its end
)

func (h header) bytes() []byte {
	b := make([]byte, headerLen)
	b[1] = byte(h.command) // the first byte is the version, 0
	binary.NativeEndian.PutUint16(b[2:], h.length)
	binary.NativeEndian.PutUint32(b[4:], h.data)
	binary.NativeEndian.PutUint64(b[8:], h.id)
	return b
}

// readHeader reads a header.
func readHeader(r io.Reader) (h header, err error) {
	b := make([]byte, headerLen)
	if _, err := io.ReadFull(r, b); err != nil {
		return h, err
	}
	h = header{command(b[1]), binary.NativeEndian.Uint16(b[2:]), binary.NativeEndian.Uint32(b[4:]),
		binary.NativeEndian.Uint64(b[8:])}
	if b[0] != 0 || h.length < headerLen {
		return h, fmt.Errorf("invalid version %d or length %d: the peer is not rcopy, or has another byte order",
			b[0], h.length)
	}
	return h, nil
}

// readReply reads the reply to a command. It returns the server's error.
func readReply(r io.Reader, c command) error {
	h, err := readHeader(r)
	switch {
	case err == io.EOF:
		return fmt.Errorf("the server has disconnected: %w", io.ErrUnexpectedEOF)
	case err != nil:
		return err
	case h.command != c|reply || h.length != headerLen:
		return fmt.Errorf("a reply of kind %#x and %d bytes, not %#x and %d: the server is not rcopy", h.command, h.length,
			c|reply, headerLen)
	case h.data != 0:
		return fmt.Errorf("the server reports: %w", syscall.Errno(h.data))
	}
	return nil
}
