package xz

import (
	"bytes"
	"encoding/base64"
	"strings"
	"testing"
)

// sample is "goverbs " 200 times, then the numbers 0 to 255 as bytes,
// compressed with `xz --check=crc32 --lzma2=dict=1MiB`, as in the kernel's
// build.
const sample = "" +
	"/Td6WFoAAAFpIt42AgAhARAAAACocI6G4Ac/APxdADObyzLkT9YZQ2LbM4VKVNw3dw4R3wq8nbDgZGChnygW61S54lg+jK1nUsY/" +
	"+OFMHzA6CXthgDoS8ExStAYI6IwqMDghR5bjkupdU9HlyRdv2+5CN04cfKCkBDKeziJ1elAJerNMeImKXDaKQeTy9m0J1RDSg64E" +
	"xA20z1Ai4RPuvDDY1UPZytGCKMQdF5sjHrGd9Hf9k3fUVHjlUGunwiKi1DONOm27+4LCR+z1E98qGEbMbpmD84RzqBjxwuZkYJUe" +
	"lcG5JiQlwMvLui4/0zI8BuUBdc4RoZte6flk8EQ5Sl8Y/hQlHBk/UgMftenjJFt6X/kRAPS5NJzowAD5wTKSAAGUAsAOAADkELFD" +
	"PjANiwIAAAAAAVla"

func sampleText() []byte {
	text := []byte(strings.Repeat("goverbs ", 200))
	for i := range 256 {
		text = append(text, byte(i))
	}
	return text
}

func sampleData(tb testing.TB) []byte {
	data, err := base64.StdEncoding.DecodeString(sample)
	if err != nil {
		tb.Fatal(err)
	}
	return data
}

func TestDecode(t *testing.T) {
	got, err := Decode(sampleData(t))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, sampleText()) {
		t.Errorf("decoded to %q", got)
	}
}

// TestDamage checks that damaged and truncated files return an error or the
// original text (bytes after the blocks are not checked).
func TestDamage(t *testing.T) {
	data, text := sampleData(t), sampleText()
	for i := range data {
		bad := bytes.Clone(data)
		bad[i] ^= 0x10
		if got, err := Decode(bad); err == nil && !bytes.Equal(got, text) {
			t.Errorf("byte %d damaged: decoded to something else without an error", i)
		}
		if got, err := Decode(data[:i]); err == nil && !bytes.Equal(got, text) {
			t.Errorf("cut to %d bytes: decoded to something else without an error", i)
		}
	}
}

func FuzzDecode(f *testing.F) {
	f.Add(sampleData(f))
	f.Fuzz(func(t *testing.T, data []byte) {
		if out, err := Decode(data); err != nil && out != nil {
			t.Errorf("both data and an error")
		}
	})
}
