package perftest

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/goverbs/goverbs/uverbs"
)

// seen is a text form that ib_read_bw -q 2 of perftest 6.24 sent.
const seen = "0000:0080:000021:e9b913:00001043:00005577cad2a000:" +
	"00:00:00:00:00:00:00:00:00:00:ff:ff:0a:09:00:01:00000000:\x00"

var seenKeys = keys{outs: 0x80, qpn: 0x21, psn: 0xe9b913, rkey: 0x1043, vaddr: 0x5577cad2a000,
	gid: uverbs.GID{10: 255, 11: 255, 12: 10, 13: 9, 15: 1}}

func TestKeysText(t *testing.T) {
	if got := string(seenKeys.text(true)); got != seen || len(got) != gidKeys {
		t.Errorf("%q, want %q", got, seen)
	}
	plain := seenKeys
	plain.lid, plain.gid, plain.srqn = 0x1234, uverbs.GID{}, 7
	const want = "1234:0080:000021:e9b913:00001043:00005577cad2a000:00000007\x00"
	if got := string(plain.text(false)); got != want || len(got) != plainKeys {
		t.Errorf("%q, want %q", got, want)
	}
	for _, c := range []struct {
		keys
		withGID bool
	}{{seenKeys, true}, {plain, false}} {
		got, err := parseKeys(c.text(c.withGID))
		if err != nil || got != c.keys {
			t.Errorf("%+v, %v, want %+v", got, err, c.keys)
		}
	}
}

func TestKeysBinary(t *testing.T) {
	k := seenKeys
	k.lid, k.srqn = 0x1234, 9
	b := k.binary()
	want := []byte("\x00\x00\x12\x34\x00\x00\x00\x80\x00\x00\x00\x21\x00\xe9\xb9\x13\x00\x00\x10\x43\x00\x00\x00\x00" +
		"\x00\x00\x55\x77\xca\xd2\xa0\x00" +
		"\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\xff\xff\x0a\x09\x00\x01\x00\x00\x00\x09\x00\x00\x00\x00")
	if d := cmp.Diff(want, b); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
	if got, err := parseBinaryKeys(b); got != k || err != nil {
		t.Errorf("%+v, want %+v", got, k)
	}
}

func TestBadKeys(t *testing.T) {
	for _, text := range []string{
		"", strings.Repeat("x", gidKeys), strings.Repeat(":", gidKeys), strings.Repeat(":", plainKeys),
		strings.Replace(seen, "e9b913", "e9b9z3", 1), strings.Replace(seen, ":ff", ":fg", 1),
		strings.Replace(seen, "0080:", "00800", 1),
	} {
		if k, err := parseKeys([]byte(text)); err == nil {
			t.Errorf("%q: %+v", text, k)
		}
	}
}

func FuzzParseKeys(f *testing.F) {
	f.Add([]byte(seen))
	f.Add(seenKeys.text(false))
	f.Fuzz(func(t *testing.T, text []byte) {
		k, err := parseKeys(text)
		if err != nil {
			return
		}
		if again, err := parseKeys(k.text(len(text) == gidKeys)); err != nil || again != k {
			t.Errorf("%q: %+v, then %+v, %v", text, k, again, err)
		}
	})
}
