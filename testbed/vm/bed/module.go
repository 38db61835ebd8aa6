package bed

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"syscall"
)

// This file builds a module that Debian's kernel packages lack, in a small Debian with Debian's compiler for modules.

// buildPackages matches the packages of that Debian: the kernel's headers and sources, the compiler, and what they
// need.
const buildPackages = kernelBuilders + `|^(base-files|bash|dash|coreutils|sed|grep|mawk|findutils|tar|xz-utils` +
	`|make|gcc-14|gcc-14-x86-64-linux-gnu|cpp-14|cpp-14-x86-64-linux-gnu|libgcc-14-dev|libcc1-0|binutils` +
	`|binutils-common|binutils-x86-64-linux-gnu|libbinutils|libsframe1|libctf0|libctf-nobfd0|libgprofng0|libjansson4` +
	`|libisl23|libmpfr6|libmpc3|libgmp10|libelf1t64|libc6|libgcc-s1|libstdc\+\+6|zlib1g|libzstd1|liblzma5|libbz2-1.0` +
	`|libselinux1|libpcre2-8-0|libacl1|libattr1|libcap2|libtinfo6|libssl3t64)$`

// kernelBuilders matches those that have the version of the kernel.
const kernelBuilders = `^linux-(headers|kbuild|source)-[0-9]`

var (
	builder       = regexp.MustCompile(buildPackages)
	kernelBuilder = regexp.MustCompile(kernelBuilders)
)

// builders returns what apt is to install, besides a kernel's image, to build a module.
func (r recipe) builders(image string) []string {
	return []string{
		strings.Replace(image, "image", "headers", 1), "linux-source-" + strings.TrimSuffix(r.Kernel, "."),
		"base-files", "bash", "dash", "coreutils", "sed", "grep", "mawk", "findutils", "tar", "xz-utils", "make", "gcc-14",
	}
}

// isBuilder reports whether a package is only for building.
func isBuilder(deb string) bool {
	name, _, _ := strings.Cut(filepath.Base(deb), "_")
	return builder.MatchString(name)
}

// buildScript runs in that Debian. Without the kernel's image there is no type information for the module, and guests
// need none.
const buildScript = `set -e
PATH=/usr/bin
mkdir /src
tar -xf /usr/src/linux-source-*.tar.xz -C /src --strip-components=1 --wildcards "*/$1/*"
make -C /usr/src/linux-headers-*-$2 M="/src/$1" CONFIG_RDMA_SIW=m CONFIG_DEBUG_INFO_BTF_MODULES= modules
strip --strip-debug /src/$1/*.ko
`

// buildModule builds the recipe's module in a new directory root, which it removes, and copies it to the kernel's tree.
func (r recipe) buildModule(ctx context.Context, debs []string, root, tree string) error {
	if runtime.GOARCH != r.Arch {
		return fmt.Errorf("the module of %s is built with a compiler for %s, which this machine cannot run: copy the part "+
			"from a bed of another machine", r.Module, r.Arch)
	}
	err := r.unpackBuilders(ctx, debs, root)
	if err == nil {
		_, err = step{argv: []string{"/usr/bin/sh", "-c", buildScript, "sh", r.Module, r.flavour()}, root: root}.run(ctx)
	}
	if errors.Is(err, syscall.EPERM) {
		err = fmt.Errorf("a program in another root needs a user namespace, or root: run "+
			"`sysctl -w kernel.unprivileged_userns_clone=1 kernel.apparmor_restrict_unprivileged_userns=0`: %w", err)
	}
	if err == nil {
		err = r.copyModules(root, tree)
	}
	return errors.Join(err, os.RemoveAll(root))
}

// unpackBuilders unpacks the packages for building.
func (r recipe) unpackBuilders(ctx context.Context, debs []string, root string) error {
	if err := os.Mkdir(root, 0o755); err != nil {
		return err
	}
	in, err := os.OpenRoot(root)
	if err != nil {
		return err
	}
	defer in.Close()
	for _, deb := range debs {
		if !isBuilder(deb) {
			continue
		}
		if err := unpack(ctx, deb, in, recipe{Drop: documentation}); err != nil {
			return err
		}
	}
	for name, target := range map[string]string{"gcc": "gcc-14", "sh": "dash", "awk": "mawk"} {
		if err := replace(in, "usr/bin/"+name, func() error { return in.Symlink(target, "usr/bin/"+name) }); err != nil {
			return err
		}
	}
	return errors.Join(in.MkdirAll("dev", 0o755), in.MkdirAll("tmp", 0o755))
}

// copyModules copies the module to the tree of the kernel.
func (r recipe) copyModules(root, tree string) error {
	made, err := filepath.Glob(filepath.Join(root, "src", r.Module, "*.ko"))
	if err != nil {
		return err
	}
	kernels, err := filepath.Glob(filepath.Join(tree, "usr/lib/modules/*/kernel"))
	if err != nil {
		return err
	}
	if len(made) != 1 || len(kernels) != 1 {
		return fmt.Errorf("%d modules were built in %s for %d kernels: correct module.go", len(made), r.Module, len(kernels))
	}
	dir := filepath.Join(kernels[0], r.Module)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return copyFile(made[0], filepath.Join(dir, filepath.Base(made[0])))
}
