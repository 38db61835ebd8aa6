package ctogo

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// A library is a C library with a section in the document.
type library struct {
	name    string
	node    string   // prefix of the names of its version nodes
	dir     string   // of its headers, under /usr/include
	headers []string // whose inline functions are listed
	file    string   // the library's path on Debian amd64
}

var libraries = []library{
	{"libibverbs", "IBVERBS_1.", "infiniband", []string{"verbs.h"}, "usr/lib/x86_64-linux-gnu/libibverbs.so.1"},
	{"libefa", "EFA_1.", "infiniband", []string{"efadv.h"}, "usr/lib/x86_64-linux-gnu/libefa.so.1"},
	{"libmlx5", "MLX5_1.", "infiniband", []string{"mlx5dv.h"}, "usr/lib/x86_64-linux-gnu/libmlx5.so.1"},
	{"librdmacm", "RDMACM_", "rdma", []string{"rdma_cma.h", "rdma_verbs.h"}, "usr/lib/x86_64-linux-gnu/librdmacm.so.1"},
}

// private is the origin of a function that a header declares but no public version
// node exports.
const private = "private"

// symbols reads testdata. It maps each function to the version node that exports it,
// or to the header that has it inline.
func (l library) symbols(t *testing.T) map[string]string {
	t.Helper()
	name := filepath.Join("testdata", l.name+".txt")
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	all := make(map[string]string)
	var lines []string
	for line := range strings.Lines(string(b)) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		lines = append(lines, line)
		where, symbol, ok := strings.Cut(strings.TrimSpace(line), " ")
		if !ok || !strings.HasPrefix(where, l.node) && !slices.Contains(l.headers, where) && where != private {
			t.Fatalf("%s: %q: want a version node or a header, and a function", name, line)
		}
		if all[symbol] != "" {
			t.Errorf("%s has %s twice", name, symbol)
		}
		all[symbol] = where
	}
	if !slices.IsSorted(lines) {
		t.Errorf("%s is not sorted", name)
	}
	return all
}

// envHeaders names a directory with the headers of all C libraries, instead of the
// machine's.
const envHeaders = "GOVERBS_RDMA_HEADERS"

// TestHeaders compares the lists with the C headers, if this machine has them. TestLibraries does it with those of the
// guests, which every machine has that runs guests.
func TestHeaders(t *testing.T) {
	for _, l := range libraries {
		t.Run(l.name, func(t *testing.T) {
			if dir := os.Getenv(envHeaders); dir != "" {
				l.testHeaders(t, dir, false)
				return
			}
			dir := filepath.Join("/usr/include", l.dir)
			if _, err := os.Stat(filepath.Join(dir, l.headers[0])); err != nil {
				t.Skipf("this machine has no %s (Debian: %s-dev); %s names another directory", l.headers[0], l.name, envHeaders)
			}
			l.testHeaders(t, dir, true)
		})
	}
}

// testHeaders compares the list with the headers in a directory. Older headers may lack what is listed.
func (l library) testHeaders(t *testing.T, dir string, older bool) {
	t.Helper()
	listed := l.symbols(t)
	for _, h := range l.headers {
		b, err := os.ReadFile(filepath.Join(dir, h))
		if err != nil {
			t.Fatal(err)
		}
		found := declared(string(b))
		for name, where := range listed {
			if where == h && !found[name] && !older {
				t.Errorf("%s has no inline %s: testdata/%s.txt has it there", h, name, l.name)
			}
		}
		for name, inline := range found {
			switch where := listed[name]; {
			case where == "":
				t.Errorf("%s has %s: add it to testdata/%s.txt", h, name, l.name)
			case inline != slices.Contains(l.headers, where), inline && where != h:
				t.Errorf("%s has %s (inline: %v), testdata/%s.txt has it in %s", h, name, inline, l.name, where)
			}
		}
	}
}

var (
	comments = regexp.MustCompile(`(?s:/\*.*?\*/)|(?m:^[ \t]*#(?:.*\\\n)*.*$)|extern "C" \{`)
	function = regexp.MustCompile(`(\w+)\s*\([^()]*\)\s*(;|\{\})`)
)

// declared returns the functions of a header, and whether they are inline (have a
// body).
func declared(text string) map[string]bool {
	text = comments.ReplaceAllString(text, "")
	var flat strings.Builder // without the text in braces
	depth := 0
	for _, r := range text {
		if r == '}' {
			depth--
		}
		if depth == 0 {
			flat.WriteRune(r)
		}
		if r == '{' {
			depth++
		}
	}
	all := make(map[string]bool)
	for _, m := range function.FindAllStringSubmatch(flat.String(), -1) {
		all[m[1]] = m[2] != ";"
	}
	return all
}

func TestDeclared(t *testing.T) {
	got := declared("/* int no(void); */\n#define X(a) f(a);\n#define Y(a) ({ \\\n f(a); \\\n })\n" +
		"extern \"C\" {\nint a(struct s *x,\n int y);\nstruct q { int (*no)(int); };\n" +
		"static inline int b(void)\n{\n if (x) { no(1); }\n return 0;\n}\nstruct z *c(void);\n}\n")
	if len(got) != 3 || got["a"] || !got["b"] || got["c"] {
		t.Errorf("%v", got)
	}
}
