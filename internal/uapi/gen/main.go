// Gen generates the Go form of the kernel's RDMA user ABI.
//
// It reads list.txt, which lists the names that goverbs uses, and the kernel's
// headers. It writes three files into the directory of package uapi: the
// constants and structs, tables that the tests walk by reflection, and
// testdata/layout.txt, which holds every size, offset and value as computed by
// the C front end. Names, numbers and field types come from the headers; no text
// is copied.
//
//	go run . -headers /path/to/usr/include -out ..
//
// The input is the headers of Linux 7.2. Later headers yield the same files,
// unless a declaration that list.txt names has changed.
package main

import (
	"cmp"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// headersEnv names the directory of the kernel headers if -headers is not given.
const headersEnv = "GOVERBS_UAPI_HEADERS"

func main() {
	headers := flag.String("headers", "", "directory that holds rdma/ib_user_verbs.h (default $"+headersEnv+
		", else the test bed's cache)")
	out := flag.String("out", "..", "directory of package uapi")
	list := flag.String("list", "list.txt", "file that lists the names to generate")
	flag.Parse()
	if err := run(*headers, *list, *out); err != nil {
		fmt.Fprintln(os.Stderr, "uapi/gen:", err)
		os.Exit(1)
	}
}

// run writes the generated files to out.
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

// generate returns the contents of the generated files by their path in package
// uapi.
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

// findHeaders returns the directory of the headers: dir, else $GOVERBS_UAPI_HEADERS,
// else the first directory of the test bed's cache that has them.
func findHeaders(dir string) (string, error) {
	const has = "rdma/ib_user_verbs.h"
	if dir = cmp.Or(dir, os.Getenv(headersEnv)); dir != "" {
		if _, err := os.Stat(filepath.Join(dir, has)); err != nil {
			return "", fmt.Errorf("%s has no %s", dir, has)
		}
		return dir, nil
	}
	if cache, err := os.UserCacheDir(); err == nil {
		found, _ := filepath.Glob(filepath.Join(cache, "goverbs-bed", "headers-*", "tree", "usr", "include", has))
		if len(found) > 0 {
			return strings.TrimSuffix(slices.Min(found), has), nil
		}
	}
	return "", fmt.Errorf("no kernel headers: give -headers or %s (Debian: linux-libc-dev of trixie-backports, unpacked)",
		headersEnv)
}
