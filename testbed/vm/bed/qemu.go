package bed

import (
	"fmt"
	"path/filepath"
	"runtime"
)

// QEMUCommand returns the program and the first arguments of the bed's QEMU for
// guests of an architecture ("amd64" or "arm64"). It is started by the loader
// of its own tree, so it does not use the host's libraries.
func (b *Bed) QEMUCommand(arch string) (argv, env []string, err error) {
	tree, err := b.Tree(QEMU)
	if err != nil {
		return nil, nil, err
	}
	program, ok := map[string]string{"amd64": "qemu-system-x86_64", "arm64": "qemu-system-aarch64"}[arch]
	if !ok {
		return nil, nil, fmt.Errorf("bed: no QEMU for guests of architecture %q; there are amd64 and arm64", arch)
	}
	triplet, loader := "x86_64-linux-gnu", "ld-linux-x86-64.so.2"
	if runtime.GOARCH == "arm64" {
		triplet, loader = "aarch64-linux-gnu", "ld-linux-aarch64.so.1"
	}
	lib := filepath.Join(tree, "usr/lib", triplet)
	argv = []string{
		filepath.Join(lib, loader), "--library-path", lib, "--argv0", program, filepath.Join(tree, "usr/bin", program),
		"-L", filepath.Join(tree, "usr/share/qemu"), "-L", filepath.Join(tree, "usr/share/seabios"),
		"-L", filepath.Join(tree, "usr/lib/ipxe/qemu"),
	}
	return argv, []string{"QEMU_MODULE_DIR=" + filepath.Join(lib, "qemu")}, nil
}

// A KernelImage has the paths of a kernel's image and modules.
type KernelImage struct {
	Release string // as `uname -r` says it
	Image   string // bootable image
	Modules string // the directory lib/modules/RELEASE
}

// Kernel returns the image and the modules of a kernel part.
func (b *Bed) Kernel(p Part) (KernelImage, error) {
	tree, err := b.Tree(p)
	if err != nil {
		return KernelImage{}, err
	}
	for _, top := range []string{"lib/modules/*", "usr/lib/modules/*"} {
		dirs, err := filepath.Glob(filepath.Join(tree, top))
		if err != nil {
			return KernelImage{}, err
		}
		if len(dirs) != 1 {
			continue
		}
		k := KernelImage{Release: filepath.Base(dirs[0]), Modules: dirs[0]}
		for _, image := range []string{filepath.Join(tree, "boot", "vmlinuz-"+k.Release),
			filepath.Join(k.Modules, "vmlinuz")} {
			if exists(image) {
				k.Image = image
				return k, nil
			}
		}
	}
	return KernelImage{}, fmt.Errorf("bed: part %s in %s has no kernel image with modules", p, tree)
}
