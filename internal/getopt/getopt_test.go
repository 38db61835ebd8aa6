package getopt

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

type values struct {
	Size   int
	Events bool
	Check  bool
	Device string
	JSON   bool
}

func (v *values) options() []Option {
	return []Option{
		{'s', "size", "size", "size of message", Int(&v.Size, 1, 1<<20)},
		{'e', "events", "", "sleep on events", Flag(&v.Events)},
		{'c', "chk", "", "validate", Flag(&v.Check)},
		{'d', "ib-dev", "dev", "device", String(&v.Device)},
		{'i', "ib-port", "port", "port", Int(new(int), 1, 255)},
		{0, "out_json", "", "write JSON", Flag(&v.JSON)},
	}
}

func TestParse(t *testing.T) {
	for _, c := range []struct {
		args     string
		want     values
		operands string
	}{
		{"", values{}, ""},
		{"-s 64", values{Size: 64}, ""},
		{"-s64", values{Size: 64}, ""},
		{"-s0x40", values{Size: 64}, ""},
		{"-s 0100", values{Size: 64}, ""},
		{"--size=64", values{Size: 64}, ""},
		{"--size 64", values{Size: 64}, ""},
		{"--si=64", values{Size: 64}, ""},
		{"--ib-d=rxe0 -e", values{Device: "rxe0", Events: true}, ""},
		{"-ecs64", values{Size: 64, Events: true, Check: true}, ""},
		{"-ecs 64 host", values{Size: 64, Events: true, Check: true}, "host"},
		{"host -e", values{Events: true}, "host"},
		{"-e -- -c host", values{Events: true}, "-c host"},
		{"-d -e", values{Device: "-e"}, ""},
		{"--ib-dev=", values{}, ""},
		{"-d a -d b", values{Device: "b"}, ""},
		{"-", values{}, "-"},
		{"--out", values{JSON: true}, ""},
	} {
		var got values
		operands, err := Parse(strings.Fields(c.args), got.options())
		if err != nil {
			t.Errorf("%q: %v", c.args, err)
			continue
		}
		if d := cmp.Diff(c.want, got); d != "" {
			t.Errorf("%q: (-want +got)\n%s", c.args, d)
		}
		if got := strings.Join(operands, " "); got != c.operands {
			t.Errorf("%q: operands %q, want %q", c.args, got, c.operands)
		}
	}
}

func TestParseErrors(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"-x", "unknown option -x"},
		{"-\x00", "unknown option -\x00"},
		{"--out_json=1", "option --out_json accepts no argument"},
		{"-ex", "unknown option -x"},
		{"--nope", "unknown option --nope"},
		{"--sise=64", "unknown option --sise: did you mean --size?"},
		{"--out-json", "unknown option --out-json: did you mean --out_json?"},
		{"--evnts", "unknown option --evnts: did you mean --events?"},
		{"--ib=1", "option --ib is ambiguous: --ib-dev, --ib-port"},
		{"-s", "option -s, --size needs an argument: <size>"},
		{"--size", "option -s, --size needs an argument: <size>"},
		{"--events=1", "option -e, --events accepts no argument"},
		{"-s 0", `option -s, --size: "0" is not a number from 1 to 1048576`},
		{"-s many", `option -s, --size: "many" is not a number from 1 to 1048576`},
	} {
		_, err := Parse(strings.Fields(c.args), new(values).options())
		if err == nil || err.Error() != c.want {
			t.Errorf("%q: error %v, want %s", c.args, err, c.want)
		}
	}
	for _, arg := range []string{"-h", "--help"} {
		if _, err := Parse([]string{arg}, new(values).options()); !errors.Is(err, ErrHelp) {
			t.Errorf("%s: error %v", arg, err)
		}
	}
}

func TestUsage(t *testing.T) {
	var b strings.Builder
	all := new(values).options()
	if err := Usage(&b, []Option{all[0], all[1], all[5]}); err != nil {
		t.Fatal(err)
	}
	const want = "  -s, --size=<size>      size of message\n  -e, --events           sleep on events\n" +
		"      --out_json         write JSON\n"
	if b.String() != want {
		t.Errorf("got %q, want %q", b.String(), want)
	}
}

// The programs of librdmacm have no long options.
func TestShort(t *testing.T) {
	var count int
	var verbose bool
	options := []Option{
		Short('C', "count", "how often", Decimal(&count, 0, 100)),
		Short('v', "", "show", Flag(&verbose)),
	}
	if _, err := Parse([]string{"-vC", "010"}, options); err != nil || count != 10 || !verbose {
		t.Errorf("count %d, verbose %t, error %v", count, verbose, err)
	}
	for args, want := range map[string]string{
		"--C=1":   "unknown option --C",
		"--=1":    "unknown option --",
		"-C 0x10": `option -C: "0x10" is not a number from 0 to 100`,
		"-C":      "option -C needs an argument: <count>",
	} {
		if _, err := Parse(strings.Fields(args), options); err == nil || err.Error() != want {
			t.Errorf("%q: error %v, want %s", args, err, want)
		}
	}
	var b strings.Builder
	if err := Usage(&b, options); err != nil {
		t.Fatal(err)
	}
	const want = "  -C <count>             how often\n  -v                     show\n"
	if b.String() != want {
		t.Errorf("got %q, want %q", b.String(), want)
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{"-s 64 host", "--size=64", "-ecs64", "-- -x", "--ib", "-h"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, line string) {
		args := strings.Split(line, " ")
		operands, err := Parse(args, new(values).options())
		if err == nil && len(operands) > len(args) {
			t.Errorf("%q: %d operands", line, len(operands))
		}
	})
}
