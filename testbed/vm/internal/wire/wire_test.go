package wire

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestRoundTrip(t *testing.T) {
	want := []Frame{
		{Hello, 0, []byte(`{}`)},
		{Stdout, 7, bytes.Repeat([]byte("x"), 5000)},
		{CloseStdin, 1<<32 - 1, []byte{}},
	}
	var b []byte
	for _, f := range want {
		b = f.Append(b)
	}
	r := bytes.NewReader(b)
	for _, w := range want {
		got, err := Read(r)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(w, got); diff != "" {
			t.Error(diff)
		}
	}
	if _, err := Read(r); err != io.EOF {
		t.Errorf("at the end: %v", err)
	}
}

func TestMessage(t *testing.T) {
	want := StartRequest{Path: "/bin/true", Env: []string{"A=1"}, Rlimits: []Rlimit{{8, 1, 2}}, TTY: &WindowSize{24, 80}}
	f, err := Message(Start, 3, want)
	if err != nil {
		t.Fatal(err)
	}
	var got StartRequest
	if err := f.Decode(&got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func FuzzRead(f *testing.F) {
	f.Add(Frame{Stdout, 1, []byte("abc")}.Append(nil))
	f.Add([]byte("kernel panic"))
	f.Fuzz(func(t *testing.T, data []byte) {
		frame, err := Read(bytes.NewReader(data))
		if err != nil {
			if !errors.Is(err, ErrFrame) && err != io.EOF && err != io.ErrUnexpectedEOF {
				t.Errorf("unexpected error %v", err)
			}
			return
		}
		if again := frame.Append(nil); !bytes.Equal(again, data[:len(again)]) {
			t.Errorf("%x came back as %x", data, again)
		}
	})
}
