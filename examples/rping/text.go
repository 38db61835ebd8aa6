package main

import (
	"bytes"
	"fmt"
	"math"
	"strconv"
)

// The text of a ping is its number, and behind it the characters from A to z
// over and over. Each ping begins with the next of them.
const (
	minSize   = 23         // has room for the highest number
	maxSize   = 64<<10 - 1 // as the C program's
	firstChar = 'A'
	numChars  = 'z' - 'A' + 1
)

// rolling holds them as often as the longest text takes them.
var rolling = func() []byte {
	b := make([]byte, maxSize+numChars)
	for i := range b {
		b[i] = firstChar + byte(i%numChars)
	}
	return b
}()

// putText fills b with the text of a ping, which ends with a NUL.
func putText(b []byte, ping int) {
	var number [minSize]byte
	head := append(number[:0], "rdma-ping-"...)
	head = strconv.AppendInt(head, int64(ping&math.MaxInt32), 10)
	n := copy(b, append(head, ": "...))
	copy(b[n:], rolling[ping%numChars:])
	b[len(b)-1] = 0
}

// textLen is the length of the text in b with its NUL, or of b if there is
// none.
func textLen(b []byte) int {
	if i := bytes.IndexByte(b, 0); i >= 0 {
		return i + 1
	}
	return len(b)
}

// compare says where a text differs from what it should be.
func compare(got, want []byte) error {
	if bytes.Equal(got, want) {
		return nil
	}
	for i := range want {
		if got[i] != want[i] {
			return fmt.Errorf("data mismatch! byte %d of %d is %#02x, not %#02x: the data were damaged on the way", i, len(want), got[i], want[i])
		}
	}
	return nil
}
