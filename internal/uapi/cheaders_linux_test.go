package uapi

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"sort"
	"strconv"
	"strings"
	"testing"
)

// missing reports that this machine cannot do the comparison with C.
type missing struct{ what string }

func (m missing) Error() string { return "this machine has no " + m.what }

// inputVersion is LINUX_VERSION_CODE of Linux 7.2. Headers of that version and
// later must have every name.
const inputVersion = 7<<16 | 2<<8

// cHeaders is a directory of kernel headers.
type cHeaders struct {
	dir     string
	version int
	text    map[string]string
}

// findCHeaders returns the headers in $GOVERBS_UAPI_HEADERS, else those of the
// test bed, else those of the machine.
func findCHeaders() (*cHeaders, error) {
	dirs := []string{"/usr/include"}
	if cache, err := os.UserCacheDir(); err == nil {
		found, _ := filepath.Glob(filepath.Join(cache, "goverbs-bed", "headers-*", "tree", "usr", "include"))
		sort.Strings(found)
		dirs = append(found, dirs...)
	}
	if env := os.Getenv("GOVERBS_UAPI_HEADERS"); env != "" {
		dirs = []string{env}
	}
	for _, d := range dirs {
		if _, err := os.Stat(filepath.Join(d, "rdma", "ib_user_verbs.h")); err != nil {
			continue
		}
		h := &cHeaders{dir: d, text: map[string]string{}}
		data, err := os.ReadFile(filepath.Join(d, "linux", "version.h"))
		if err != nil {
			return nil, err
		}
		m := regexp.MustCompile(`LINUX_VERSION_CODE\s+(\d+)`).FindSubmatch(data)
		if m == nil {
			return nil, fmt.Errorf("%s/linux/version.h has no LINUX_VERSION_CODE", d)
		}
		h.version, err = strconv.Atoi(string(m[1]))
		return h, err
	}
	return nil, missing{"rdma/ib_user_verbs.h (Debian: linux-libc-dev)"}
}

// has reports whether all words occur in the header.
func (h *cHeaders) has(header string, words ...string) bool {
	text, ok := h.text[header]
	if !ok {
		data, _ := os.ReadFile(filepath.Join(h.dir, header)) // absent: no words
		text = string(data)
		h.text[header] = text
	}
	for _, w := range words {
		if !regexp.MustCompile(`\b` + regexp.QuoteMeta(w) + `\b`).MatchString(text) {
			return false
		}
	}
	return true
}

// findCC returns the path of a C compiler.
func findCC() (string, error) {
	for _, cc := range []string{os.Getenv("CC"), "cc", "gcc", "clang"} {
		if cc == "" {
			continue
		}
		if path, err := exec.LookPath(cc); err == nil {
			return path, nil
		}
	}
	return "", missing{"C compiler"}
}

// TestTableMatchesCHeaders compiles a program that prints every size, offset and
// value, and compares its output with testdata/layout.txt.
func TestTableMatchesCHeaders(t *testing.T) {
	cc, err := findCC()
	var h *cHeaders
	if err == nil {
		h, err = findCHeaders()
	}
	var lack missing
	if errors.As(err, &lack) && os.Getenv("GOVERBS_UAPI_HEADERS") == "" {
		t.Skip(lack)
	}
	if err != nil {
		t.Fatal(err)
	}
	src, want, absent, loose := cProgram(readGolden(t), h)
	t.Logf("headers %s (Linux %d.%d), %d values compared", h.dir, h.version>>16, h.version>>8&0xff, len(want))
	if len(absent) > 0 {
		t.Logf("these headers lack %d names: %s", len(absent), strings.Join(absent, " "))
		if h.version >= inputVersion {
			t.Error("headers of Linux 7.2 or later must have every name")
		}
	}
	got := runC(t, cc, h, src)
	for key, w := range want {
		if g, ok := got[key]; !ok || g != w {
			if name := strings.Fields(key)[1]; loose[name] {
				t.Logf("%s: C has %s, table has %s (an older form of %s)", key, g, w, name)
				continue
			}
			t.Errorf("%s: C has %q, table has %q", key, g, w)
		}
	}
}

// cProgram returns the source of the program, the lines that it must print, the
// names that the headers lack and the structs that lack a field.
func cProgram(g golden, h *cHeaders) (src string, want map[string]string, absent []string, loose map[string]bool) {
	want, loose = map[string]string{}, map[string]bool{}
	var head, body strings.Builder
	included := map[string]bool{}
	include := func(header string) {
		if !included[header] {
			included[header] = true
			fmt.Fprintf(&head, "#include <%s>\n", header)
		}
	}
	for _, c := range g.consts {
		include(c.header)
		if !h.has(c.header, c.name) {
			absent = append(absent, c.name)
			continue
		}
		want["const "+c.name] = strconv.FormatUint(c.value, 10)
		fmt.Fprintf(&body, "\tprintf(\"const %s = %%llu\\n\", (unsigned long long)(%s));\n", c.name, c.name)
	}
	for _, s := range g.structs {
		include(s.header)
		if !h.has(s.header, s.cname) || s.base != "." && !h.has(s.header, strings.Split(s.base, ".")...) {
			absent = append(absent, s.name)
			continue
		}
		obj, base := fmt.Sprintf("*(struct %s *)0", s.cname), "0"
		if s.base != "." {
			obj, base =
				fmt.Sprintf("((struct %s *)0)->%s", s.cname, s.base), fmt.Sprintf("offsetof(struct %s, %s)", s.cname, s.base)
		}
		want["struct "+s.name] = strconv.Itoa(s.size)
		fmt.Fprintf(&body, "\tprintf(\"struct %s = %%zu\\n\", sizeof(%s));\n", s.name, obj)
		for _, f := range s.fields {
			if f.path == "." {
				continue
			}
			expr := s.expr(f)
			if !h.has(s.header, strings.Split(expr, ".")...) {
				absent = append(absent, s.name+"."+f.name)
				loose[s.name] = true
				continue
			}
			want["field "+s.name+" "+f.path] = fmt.Sprintf("%d %d", f.off, f.size)
			fmt.Fprintf(&body,
				"\tprintf(\"field %s %s = %%zu %%zu\\n\", offsetof(struct %s, %s) - %s, sizeof(((struct %s *)0)->%s));\n",
				s.name, f.path, s.cname, expr, base, s.cname, expr)
		}
	}
	src = "#include <stddef.h>\n#include <stdio.h>\n" + head.String() + "\nint main(void)\n{\n" +
		body.String() + "\treturn 0;\n}\n"
	return src, want, absent, loose
}

// runC compiles and runs the program and returns its output as a map, split at
// the equals signs.
func runC(t *testing.T, cc string, h *cHeaders, src string) map[string]string {
	t.Helper()
	dir := t.TempDir()
	file, bin := filepath.Join(dir, "layout.c"), filepath.Join(dir, "layout")
	if err := os.WriteFile(file, []byte(src), 0o644); err != nil {
		t.Fatal(err)
	}
	args := []string{"-o", bin, file}
	if h.dir != "/usr/include" {
		multiarch := map[string]string{"amd64": "x86_64-linux-gnu", "arm64": "aarch64-linux-gnu"}[runtime.GOARCH]
		args = append(args, "-I", h.dir, "-I", filepath.Join(h.dir, multiarch))
	}
	if out, err := exec.Command(cc, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", cc, err, out)
	}
	out, err := exec.Command(bin).Output()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, line := range strings.Split(strings.TrimSpace(string(out)), "\n") {
		key, value, _ := strings.Cut(line, " = ")
		got[key] = value
	}
	return got
}
