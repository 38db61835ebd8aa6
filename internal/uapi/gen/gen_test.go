package main

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

const testList = `
header rdma/ib_user_verbs.h
const TEST_NUMBER TEST_MASK # a comment
const TEST_A TEST_D
const TEST_F_X TEST_F_Y
struct test_inner
struct test_all
  flatten half pair
  bytes words
  type caps TestCaps
  variant op.one TestOne
`

// TestGenerate checks the Go form of each C construct.
func TestGenerate(t *testing.T) {
	files, err := generate("testdata", testList)
	if err != nil {
		t.Fatal(err)
	}
	for name, golden := range map[string]string{
		"zuapi_linux.go":      "testdata/want.go.txt",
		"testdata/layout.txt": "testdata/want.layout.txt",
	} {
		if os.Getenv("GOVERBS_UPDATE") != "" {
			if err := os.WriteFile(golden, files[name], 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(golden)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(files[name], want) {
			t.Errorf("%s:\n%s\nwant:\n%s", name, files[name], want)
		}
	}
}

// TestErrors checks that C without a Go form, and a wrong list, are errors.
func TestErrors(t *testing.T) {
	for list, want := range map[string]string{
		"header rdma/ib_user_verbs.h\nconst TEST_NONE":     "no constant TEST_NONE",
		"header rdma/ib_user_verbs.h\nconst TEST_TEXT":     "no constant TEST_TEXT",
		"header rdma/ib_user_verbs.h\nstruct test_none":    "not in the headers",
		"header rdma/ib_user_verbs.h\nstruct test_bits":    "bit field",
		"header rdma/ib_user_verbs.h\nstruct test_all":     "not in the list",
		"header rdma/none.h\nconst TEST_A":                 "none.h",
		"header rdma/ib_user_verbs.h\nstruct test_unknown": "field b has an unknown type",
		"struct":                       "list line 1",
		"  bytes x":                    "list line 1",
		"header h\nstruct x\n  frob y": "list line 3",
		"header rdma/ib_user_verbs.h\nstruct test_inner\nstruct test_all\n flatten op z": "no member op.z",
		"header rdma/ib_user_verbs.h\nstruct test_inner\nstruct test_all\n variant q Z":  "not in the list",
	} {
		_, err := generate("testdata", list)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want one with %q", list, err, want)
		}
	}
}

// TestGeneratedFilesAreCurrent runs the generator on the headers of Linux 7.2 or
// later and compares the result with the checked-in files.
func TestGeneratedFilesAreCurrent(t *testing.T) {
	dir, err := findHeaders("")
	if err != nil {
		if os.Getenv(headersEnv) != "" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	if v := version(t, dir); v < 7<<16|2<<8 {
		t.Skipf("%s has Linux %d.%d, the generated files need 7.2 or later", dir, v>>16, v>>8&0xff)
	}
	list, err := os.ReadFile("list.txt")
	if err != nil {
		t.Fatal(err)
	}
	files, err := generate(dir, string(list))
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range files {
		got, err := os.ReadFile(filepath.Join("..", name))
		if err != nil {
			t.Error(err)
			continue
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%s is stale: run go generate ./internal/uapi", name)
		}
	}
}

func version(t *testing.T, dir string) int {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, "linux", "version.h"))
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`LINUX_VERSION_CODE\s+(\d+)`).FindSubmatch(data)
	if m == nil {
		t.Fatalf("%s: no LINUX_VERSION_CODE", dir)
	}
	v, err := strconv.Atoi(string(m[1]))
	if err != nil {
		t.Fatal(err)
	}
	return v
}
