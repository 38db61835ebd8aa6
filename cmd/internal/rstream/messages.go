package rstream

import (
	"io"
	"time"
)

// measureMessages carries out a test of rstream.
func measureMessages(e *end, t test) (time.Duration, error) {
	buf := make([]byte, max(t.size, syncSize))
	if err := exchange(e, buf[:syncSize], 1); err != nil { // both are ready
		return 0, err
	}
	start := time.Now()
	for range t.iters {
		if err := exchange(e, buf[:t.size], t.transfers); err != nil {
			return 0, err
		}
	}
	return time.Since(start), nil
}

// syncSize is the length of the message that each side sends before a test.
const syncSize = 16

// exchange sends b a number of times and receives as often, or the other way round.
func exchange(e *end, b []byte, transfers int) error {
	first, second := receive, send
	if e.client {
		first, second = second, first
	}
	for range transfers {
		if err := first(e, b); err != nil {
			return err
		}
	}
	for range transfers {
		if err := second(e, b); err != nil {
			return err
		}
	}
	return nil
}

func send(e *end, b []byte) error {
	e.fill(b)
	_, err := e.conn.Write(b)
	return err
}

func receive(e *end, b []byte) error {
	if _, err := io.ReadFull(e.conn, b); err != nil {
		return err
	}
	return e.verifyData(b)
}
