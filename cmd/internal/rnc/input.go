package rnc

import (
	"io"
	"os"
)

// An input is the data of standard input, which one connection after the other sends.
type input struct {
	chunks  chan []byte   // closed at the end
	written chan struct{} // after each chunk
	err     error         // why it has ended, if not at its end; set before chunks is closed
	file    bool          // it is a regular file, which ends soon
}

const chunkLen = 64 << 10

// read reads in until it ends. A read that waits for a terminal cannot be interrupted: the goroutine may run until the
// program ends.
func read(in io.Reader) *input {
	i := &input{chunks: make(chan []byte), written: make(chan struct{})}
	if f, ok := in.(*os.File); ok {
		if s, err := f.Stat(); err == nil {
			i.file = s.Mode().IsRegular()
		}
	}
	go func() {
		defer close(i.chunks)
		for b := make([]byte, chunkLen); ; {
			n, err := in.Read(b)
			if n > 0 {
				i.chunks <- b[:n]
				<-i.written
			}
			if err != nil {
				if err != io.EOF {
					i.err = err
				}
				return
			}
		}
	}()
	return i
}
