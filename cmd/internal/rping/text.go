package rping

import (
	"bytes"
	"fmt"
	"math"
	"strconv"
)

// The text of a ping is its number, followed by the characters from A to z repeatedly. Each ping starts with the next
// character.
const (
	minSize   = 23         // has room for the highest number
	maxSize   = 64<<10 - 1 // as in the C program
	firstChar = 'A'
	numChars  = 'z' - 'A' + 1
)

// rolling repeats the characters for the longest text.
var rolling = func() []byte {
	b := make([]byte, maxSize+numChars)
	for i := range b {
		b[i] = firstChar + byte(i%numChars)
	}
	return b
}()

// putText fills b with the text of a ping and a final NUL.
func putText(b []byte, ping int) {
	var number [minSize]byte
	head := append(number[:0], "rdma-ping-"...)
	head = strconv.AppendInt(head, int64(ping&math.MaxInt32), 10)
	n := copy(b, append(head, ": "...))
	copy(b[n:], rolling[ping%numChars:])
	b[len(b)-1] = 0
}

// textLen returns the length of the text in b including its NUL, or len(b) if b has no NUL.
func textLen(b []byte) int {
	if i := bytes.IndexByte(b, 0); i >= 0 {
		return i + 1
	}
	return len(b)
}

// compare returns an error with the first difference between got and want.
func compare(got, want []byte) error {
	if bytes.Equal(got, want) {
		return nil
	}
	for i := range want {
		if got[i] != want[i] {
			return fmt.Errorf("data mismatch! byte %d of %d is %#02x, not %#02x: the data was changed on the way or at an end",
				i, len(want), got[i], want[i])
		}
	}
	return nil
}
