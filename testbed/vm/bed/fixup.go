package bed

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
)

// fixRoot does what a guest needs of the packages' maintainer scripts, and
// creates the guests' mount points.
func fixRoot(ctx context.Context, dir string) error {
	in := func(elem ...string) string { return filepath.Join(append([]string{dir}, elem...)...) }
	for _, d := range []string{"goverbs", "share", "sys", "proc", "dev", "run", "tmp", "root", "lib/modules"} {
		if err := os.MkdirAll(in(d), 0o755); err != nil {
			return err
		}
	}
	err := errors.Join(
		copyFile(in("usr/share/base-passwd/passwd.master"), in("etc/passwd")),
		copyFile(in("usr/share/base-passwd/group.master"), in("etc/group")),
		copyFile(in("usr/share/libc-bin/nsswitch.conf"), in("etc/nsswitch.conf")),
		os.WriteFile(in("etc/hosts"), []byte("127.0.0.1 localhost\n::1 localhost\n"), 0o644),
		os.WriteFile(in("etc/hostname"), []byte("guest\n"), 0o644),
		os.Symlink("mawk", in("usr/bin/awk")),
		os.Symlink("../proc/self/mounts", in("etc/mtab")))
	if err != nil {
		return err
	}
	tests := in("usr/share/doc/rdma-core/tests")
	if err := gunzipAll(tests); err != nil {
		return err
	}
	return compilePython(ctx, dir, tests)
}

// gunzipAll decompresses every *.gz of a directory in place.
func gunzipAll(dir string) error {
	files, err := filepath.Glob(filepath.Join(dir, "*.gz"))
	if err != nil {
		return err
	}
	if len(files) == 0 {
		return fmt.Errorf("no gzipped Python tests in %s: the package's layout has changed", dir)
	}
	for _, name := range files {
		if err := gunzip(name); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

func gunzip(name string) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	r, err := gzip.NewReader(f)
	if err != nil {
		return err
	}
	text, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	return errors.Join(os.WriteFile(strings.TrimSuffix(name, ".gz"), text, 0o644), os.Remove(name))
}

// compilePython runs the tree's Python on the host to compile the tree's Python
// files, which would take seconds at each start under emulation. It does
// nothing on a host of another architecture.
func compilePython(ctx context.Context, dir, tests string) error {
	if runtime.GOARCH != "amd64" {
		return nil
	}
	libs, err := filepath.Glob(filepath.Join(dir, "usr/lib/python3*"))
	if err != nil {
		return err
	}
	lib := filepath.Join(dir, "usr/lib/x86_64-linux-gnu")
	argv := []string{
		"/usr/bin/env", "PYTHONHOME=" + filepath.Join(dir, "usr"),
		filepath.Join(lib, "ld-linux-x86-64.so.2"), "--library-path", lib, filepath.Join(dir, "usr/bin/python3"),
		"-m", "compileall", "-q", "--invalidation-mode", "unchecked-hash", "-s", dir,
	}
	_, err = step{dir: dir, argv: append(append(argv, libs...), tests)}.run(ctx)
	return err
}

// run is a script that runs a program of Preload, or another one, with the libraries of Preload. Under the name rsrun
// it also loads librspreload, so that the program's TCP connections are rsockets.
const run = `#!/bin/sh
dir=${0%/*}
lib=$dir/usr/lib/x86_64-linux-gnu
program=$1
shift
if [ -e "$dir/usr/bin/$program" ]; then program=$dir/usr/bin/$program; fi
case $0 in */rsrun) set -- --preload "$lib/rsocket/librspreload.so" "$program" "$@" ;; *) set -- "$program" "$@" ;; esac
exec "$lib/ld-linux-x86-64.so.2" --library-path "$lib:$lib/libibverbs" "$@"
`

// fixPreload writes the script, and checks that the package has librspreload where the script expects it.
func fixPreload(dir string) error {
	_, err := os.Stat(filepath.Join(dir, "usr/lib/x86_64-linux-gnu/rsocket/librspreload.so"))
	return errors.Join(err,
		os.WriteFile(filepath.Join(dir, "run"), []byte(run), 0o755),
		os.Link(filepath.Join(dir, "run"), filepath.Join(dir, "rsrun")))
}
