package bed

import (
	"context"
	"errors"
	"os"
	"path/filepath"
)

// RDMAFlags returns the flags with which gcc of this machine compiles and links programs that use RDMA for guests with
// Root. It links the headers and libraries of Root for RDMA into dir, and nothing else of it: everything else is this
// machine's, which is older.
func RDMAFlags(ctx context.Context, dir string) (compile, link []string, err error) {
	b, err := Ensure(ctx, os.Stderr, Root)
	if err != nil {
		return nil, nil, err
	}
	tree, err := b.Tree(Root)
	if err != nil {
		return nil, nil, err
	}
	lib := filepath.Join(tree, "usr/lib/x86_64-linux-gnu")
	for name, to := range map[string]string{
		"include/infiniband": filepath.Join(tree, "usr/include/infiniband"),
		"include/rdma":       filepath.Join(tree, "usr/include/rdma"),
		"lib/libibverbs.so":  filepath.Join(lib, "libibverbs.so.1"),
		"lib/librdmacm.so":   filepath.Join(lib, "librdmacm.so.1"),
	} {
		at := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			return nil, nil, err
		}
		if err := os.Symlink(to, at); err != nil && !errors.Is(err, os.ErrExist) {
			return nil, nil, err
		}
	}
	return []string{"-I" + filepath.Join(dir, "include")},
		[]string{"-L" + filepath.Join(dir, "lib"), "-Wl,--allow-shlib-undefined,--as-needed"}, nil
}
