package s3rdma_test

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/minio/minio-go/v7/pkg/signer"

	"github.com/goverbs/goverbs/s3rdma"
	"github.com/goverbs/goverbs/uverbs"
)

const (
	descriptor = "0102030405060708:01020304:0a0b0c0d:0102:010203:1:00000000000000000000ffffc0000201"
	rcToken    = "01" + "03020100" + "00000000000000000000ffffc0000201" + "0d0c0b0a" + "0807060504030201" +
		"0403020100000000" + "01" + "0201"
)

// TestToken parses and writes the descriptor of the wire.
func TestToken(t *testing.T) {
	want := s3rdma.Token{Addr: 0x0102030405060708, Size: 0x01020304, RKey: 0x0a0b0c0d, LID: 0x0102, DCTN: 0x010203,
		HasGID: true, GID: uverbs.GID{10: 0xff, 11: 0xff, 12: 192, 15: 1, 14: 2}}
	if got := want.String(); got != descriptor || len(got) != 81 {
		t.Errorf("%d characters: %s, want %s", len(got), got, descriptor)
	}
	part := want
	part.Addr, part.Size = want.Addr+0x10, 0x20
	for text, token := range map[string]s3rdma.Token{
		descriptor:                  want,
		descriptor + ";":            want,
		strings.ToUpper(descriptor): want,
		descriptor + ":0102030405060708:0000000001020304":  want,
		descriptor + ":0102030405060718:0000000000000020":  part,
		descriptor + ":0102030405060718:0000000000000020;": part,
	} {
		if got, err := s3rdma.ParseToken(text); err != nil || got != token {
			t.Errorf("ParseToken(%q) = %+v, %v, want %+v", text, got, err, token)
		}
	}
}

// hostileTokens are texts that no client of the wire sends.
var hostileTokens = map[string]string{
	"empty":           "",
	"garbage":         strings.Repeat("x", 81),
	"long":            strings.Repeat("0", 1<<20),
	"short":           descriptor[:80],
	"blanks":          " " + descriptor[1:],
	"sign":            "+" + descriptor[1:],
	"prefix":          "0x" + descriptor[2:],
	"separator":       strings.Replace(descriptor, ":", ";", 1),
	"end of memory":   "fffffffffffffff0:" + descriptor[17:],
	"no DCT":          strings.Replace(descriptor, "010203:1", "000000:1", 1),
	"has-gid":         strings.Replace(descriptor, "010203:1", "010203:2", 1),
	"no GID":          descriptor[:49] + strings.Repeat("0", 32),
	"multicast":       descriptor[:49] + "ff" + descriptor[51:],
	"no address":      "0102030405060708:01020304:0a0b0c0d:0000:010203:0:" + strings.Repeat("0", 32),
	"before":          descriptor + ":0102030405060707:0000000000000001",
	"behind":          descriptor + ":0102030406080a0c:0000000000000001",
	"longer":          descriptor + ":0102030405060709:0000000001020304",
	"overflow":        descriptor + ":0102030405060708:ffffffffffffffff",
	"half a suffix":   descriptor + ":0102030405060708",
	"suffix of words": descriptor + ":xxxxxxxxxxxxxxxx:xxxxxxxxxxxxxxxx",
	"two semicolons":  descriptor + ";;",
}

func TestHostileTokens(t *testing.T) {
	for name, text := range hostileTokens {
		if got, err := s3rdma.ParseToken(text); !errors.Is(err, s3rdma.ErrToken) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}

// TestRCToken parses and writes the token of the form for reliable connections.
func TestRCToken(t *testing.T) {
	for _, text := range []string{rcToken, strings.ToUpper(rcToken), rcToken + ":1:2"} {
		if got, err := s3rdma.ParseRCToken(text); err != nil || got != rcToken {
			t.Errorf("%s, %v, want %s", got, err, rcToken)
		}
	}
	for name, text := range map[string]string{"empty": "", "short": rcToken[2:], "DC": "00" + rcToken[2:],
		"zero": strings.Repeat("0", 88), "number of the QP": "01ffffffff" + rcToken[10:],
		"no QP": "0100000000" + rcToken[10:], "multicast": rcToken[:10] + "ff" + rcToken[12:],
		"no GID": rcToken[:10] + strings.Repeat("0", 32) + rcToken[42:]} {
		if _, err := s3rdma.ParseRCToken(text); !errors.Is(err, s3rdma.ErrToken) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// FuzzTokens checks that tokens are refused or mean what their text says.
func FuzzTokens(f *testing.F) {
	f.Add(descriptor)
	f.Add(rcToken)
	f.Add(descriptor + ":0102030405060718:0000000000000020;")
	f.Fuzz(func(t *testing.T, text string) {
		if token, err := s3rdma.ParseToken(text); err == nil {
			again, err := s3rdma.ParseToken(token.String())
			if err != nil || again != token || token.Addr+uint64(token.Size) < token.Addr {
				t.Errorf("%q: %+v, and %+v, %v", text, token, again, err)
			}
		} else if !errors.Is(err, s3rdma.ErrToken) {
			t.Error(err)
		}
		if got, err := s3rdma.ParseRCToken(text); err == nil && !strings.EqualFold(got, text[:88]) {
			t.Errorf("%q is read as %q", text, got)
		}
	})
}

// TestSignature compares signatures with minio-go's.
func TestSignature(t *testing.T) {
	for _, path := range []string{"/bucket/a", "/b/%C3%A4%20%2B%26~%2F",
		"/b/a?versionId=x%20y&uploadId=1&partNumber=2&x-id"} {
		now := time.Now().UTC()
		theirs := must(http.NewRequest(http.MethodPut, "http://host.example:9000"+path, nil))(t)
		theirs.Header.Set("X-Amz-Content-Sha256", "UNSIGNED-PAYLOAD")
		theirs.Header.Set("X-Amz-Meta-Blanks", "  a   b ")
		theirs.Header.Set("Content-Type", "text/plain")
		ours := theirs.Clone(t.Context())
		theirs = signer.SignV4(*theirs, accessKey, secretKey, "", "us-east-1")
		ours.Header.Set("Authorization", theirs.Header.Get("Authorization"))
		for range 100 { // until both are of the same second
			if theirs.Header.Get("X-Amz-Date") == now.Format("20060102T150405Z") {
				break
			}
			now = now.Add(time.Second)
		}
		s3rdma.Sign(ours, secretKey, now)
		if got, want := ours.Header.Get("Authorization"), theirs.Header.Get("Authorization"); norm(got) != norm(want) {
			t.Errorf("%s:\n%s\n%s", path, got, want)
		}
	}
}

func norm(s string) string { return strings.ReplaceAll(s, " ", "") }

// TestChunked decodes bodies with the encoding aws-chunked.
func TestChunked(t *testing.T) {
	const good = "5;chunk-signature=00\r\nhello\r\n3\r\n, w\r\n0;chunk-signature=00\r\nx-amz-checksum-crc32c:AAAA\r\n\r\n"
	b := make([]byte, 8)
	trailer, err := s3rdma.ReadChunked(strings.NewReader(good), b)
	if err != nil || string(b) != "hello, w" || trailer.Get("X-Amz-Checksum-Crc32c") != "AAAA" {
		t.Errorf("%q, %v, %v", b, trailer, err)
	}
	for name, bad := range map[string]string{
		"empty": "", "no size": "\r\n", "words": "hello\r\n", "negative": "-5\r\nhello\r\n", "huge": "ffffffffffffffff\r\n",
		"long line": strings.Repeat("0", 1<<16), "longer": "9\r\nhello, wo\r\n0\r\n\r\n",
		"shorter": "5\r\nhello\r\n0\r\n\r\n",
		"cut":     "8\r\nhell", "no end of line": "8\r\nhello, w3\r\n", "no last chunk": "8\r\nhello, w\r\n",
	} {
		if _, err := s3rdma.ReadChunked(strings.NewReader(bad), make([]byte, 8)); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// FuzzChunked checks that decoding returns an error or exactly the data.
func FuzzChunked(f *testing.F) {
	f.Add([]byte("5;chunk-signature=00\r\nhello\r\n0\r\n\r\n"), 5)
	f.Fuzz(func(t *testing.T, body []byte, n int) {
		if n < 0 || n > len(body) {
			return
		}
		b := make([]byte, n)
		if _, err := s3rdma.ReadChunked(bytes.NewReader(body), b); err == nil && n > 0 && !bytes.Contains(body, b[:1]) {
			t.Errorf("%q has %q", body, b)
		}
	})
}

func TestSpans(t *testing.T) {
	for text, want := range map[string]string{
		"": "0 -1 true", "bytes=0-": "0 -1 true", "bytes=3-4": "3 5 true", "bytes=3-3": "3 4 true",
		"bytes=4-3": "false", "bytes=-3": "false", "bytes=1-2,4-5": "false", "items=1-2": "false", "bytes=": "false",
		"bytes=-": "false", "bytes=99999999999999999999-": "false", "bytes=+1-2": "false", "bytes=1": "false",
	} {
		start, end, ok := s3rdma.ParseSpan(text)
		got := fmt.Sprint(start, end, ok)
		if !ok {
			got = "false"
		}
		if got != want {
			t.Errorf("%q is %s, want %s", text, got, want)
		}
	}
}
