package faults

import (
	"testing"
)

func TestMessage(t *testing.T) {
	long := 0
	for kind, span := range map[Kind][2]int{ShortData: {0, 1024}, LongData: {2049, MaxLen}} {
		for seq := range uint64(500) {
			if n := (Message{Kind: kind, Seq: seq}).Len(); n < span[0] || n > span[1] {
				t.Errorf("message %d of kind %d has %d bytes", seq, kind, n)
			}
		}
	}
	for seq := range uint64(5000) {
		m := Message{Run: 7, Kind: Data, Seq: seq}
		b := make([]byte, MaxLen)
		n := m.Write(b)
		if n > 3000 {
			long++
		}
		got, err := Read(b[:n])
		if err != nil || got != m {
			t.Fatalf("message %v came as %v, %v", m, got, err)
		}
		if seq > 50 {
			continue
		}
		for i := range n {
			b[i] ^= 0x10
			if _, err := Read(b[:n]); err == nil {
				t.Fatalf("message %d: a flipped bit in byte %d is not detected", seq, i)
			}
			b[i] ^= 0x10
		}
		if _, err := Read(b[:n-1]); err == nil {
			t.Errorf("message %d: a missing byte is not detected", seq)
		}
	}
	if long < 50 {
		t.Errorf("%d messages of 5000 are of more than 3000 bytes", long)
	}
	if _, err := Read(nil); err == nil {
		t.Error("an empty slice was accepted as a message")
	}
}

func TestAccountCheck(t *testing.T) {
	good := Account{Posted: 10, Completed: 7, Failed: 3, Broken: 1, Resent: 3}
	if err := good.Check(); err != nil {
		t.Error(err)
	}
	for name, bad := range map[string]Account{
		"unreported": {Posted: 1, Unreported: 1}, "unflushed": {Unflushed: 1}, "twice": {Duplicates: 1}, "lost": {Lost: 1},
		"corrupt":    {Corrupt: 1},
		"miscounted": {Posted: 2, Completed: 1}, "error": {Error: "no"},
	} {
		if bad.Check() == nil {
			t.Errorf("%s is not an error", name)
		}
	}
}
