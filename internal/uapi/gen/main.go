// Gen writes the Go form of the kernel's RDMA user ABI.
//
// It reads list.txt (the names that goverbs uses) and the kernel's headers, and
// writes three files into the directory of the package uapi: the constants and
// structs, the table that its tests walk by reflection, and testdata/layout.txt,
// which holds every size, offset and value as the C front end computed it.
// Names, numbers and field types come from the headers; no text is copied.
//
//	go run . -headers /path/to/usr/include -out ..
//
// The input is Linux 7.2's headers. Later headers give the same files unless
// something that list.txt names has changed.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"sort"
)

// headersEnv names the directory of the kernel headers where no flag does.
const headersEnv = "GOVERBS_UAPI_HEADERS"

func main() {
	headers := flag.String("headers", "", "directory that holds rdma/ib_user_verbs.h (default $"+headersEnv+", else the test bed's cache)")
	out := flag.String("out", "..", "directory of the package uapi")
	list := flag.String("list", "list.txt", "what to take from the headers")
	flag.Parse()
	if err := run(*headers, *list, *out); err != nil {
		fmt.Fprintln(os.Stderr, "uapi/gen:", err)
		os.Exit(1)
	}
}

// run writes the generated files below out.
func run(headers, list, out string) error {
	headers, err := findHeaders(headers)
	if err != nil {
		return err
	}
	text, err := os.ReadFile(list)
	if err != nil {
		return err
	}
	files, err := generate(headers, string(text))
	if err != nil {
		return err
	}
	for name, data := range files {
		path := filepath.Join(out, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, data, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// generate returns the generated files by their path in the package.
func generate(headers, text string) (map[string][]byte, error) {
	entries, err := parseList(text)
	if err != nil {
		return nil, err
	}
	c, err := loadHeaders(headers, entries)
	if err != nil {
		return nil, err
	}
	m, err := buildModel(c, entries)
	if err != nil {
		return nil, err
	}
	code, err := m.goSource()
	if err != nil {
		return nil, err
	}
	table, err := m.testSource()
	if err != nil {
		return nil, err
	}
	return map[string][]byte{
		"zuapi_linux.go":      code,
		"zuapi_linux_test.go": table,
		"testdata/layout.txt": m.layout(),
	}, nil
}

// findHeaders returns the first of the flag, the environment and the test bed's
// cache that has the headers.
func findHeaders(dir string) (string, error) {
	if dir == "" {
		dir = os.Getenv(headersEnv)
	}
	if dir != "" {
		if !hasHeaders(dir) {
			return "", fmt.Errorf("%s has no rdma/ib_user_verbs.h", dir)
		}
		return dir, nil
	}
	if cache, err := os.UserCacheDir(); err == nil {
		found, _ := filepath.Glob(filepath.Join(cache, "goverbs-bed", "headers-*", "tree", "usr", "include"))
		sort.Strings(found)
		for _, d := range found {
			if hasHeaders(d) {
				return d, nil
			}
		}
	}
	return "", fmt.Errorf("no kernel headers: give -headers or %s (Debian: linux-libc-dev of trixie-backports, unpacked)", headersEnv)
}

func hasHeaders(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, "rdma", "ib_user_verbs.h"))
	return err == nil
}
