package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"github.com/goverbs/goverbs/rsocket"
)

// send copies the file source to the path of a server.
func send(ctx context.Context, host, port, source, path string, out io.Writer) (err error) {
	conn, err := new(rsocket.Dialer).DialContext(ctx, "tcp", net.JoinHostPort(host, port))
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	defer func() {
		if err != nil && ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		err = errors.Join(err, conn.Close())
	}()
	return copyFile(conn, source, path, out)
}

func copyFile(conn net.Conn, source, path string, out io.Writer) error {
	fmt.Fprint(out, "opening...")
	f, err := os.Open(source)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%s is not a regular file", source)
	}
	if err := open(conn, path, info.Mode()); err != nil {
		return err
	}
	fmt.Fprint(out, "transferring...")
	start := time.Now()
	if err := write(conn, f, info.Size()); err != nil {
		return err
	}
	took := time.Since(start)
	fmt.Fprint(out, "closing...")
	if _, err := conn.Write(header{command: cmdClose, length: headerLen}.bytes()); err != nil {
		return err
	}
	if err := readReply(conn, cmdClose); err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "done\n%d bytes in %.2f seconds = %.2f Gb/sec\n", info.Size(), took.Seconds(),
		float64(8*info.Size())/float64(took.Nanoseconds()))
	return err
}

// regular is the type of regular files, S_IFREG, which the C program sends with the mode.
const regular = 0o100000

// open opens the file at the server.
func open(conn net.Conn, path string, mode os.FileMode) error {
	name := append([]byte(path), make([]byte, 8-len(path)%8)...) // with a 0 at its end
	if len(name) > maxPath {
		return fmt.Errorf("the path has %d bytes: at most %d are possible", len(path), maxPath-8)
	}
	h := header{command: cmdOpen, length: uint16(headerLen + len(name)), data: regular | uint32(mode.Perm())}
	if _, err := conn.Write(append(h.bytes(), name...)); err != nil {
		return err
	}
	return readReply(conn, cmdOpen)
}

// write sends the file's contents.
func write(conn net.Conn, f *os.File, size int64) error {
	h := header{command: cmdWrite, length: headerLen + sizeLen}
	if _, err := conn.Write(binary.NativeEndian.AppendUint64(h.bytes(), uint64(size))); err != nil {
		return err
	}
	n, err := io.CopyN(conn, f, size)
	if err == io.EOF {
		return fmt.Errorf("%s became shorter while it was copied: %d bytes instead of %d", f.Name(), n, size)
	}
	if err != nil {
		return err
	}
	return readReply(conn, cmdWrite)
}
