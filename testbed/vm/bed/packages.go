package bed

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"runtime"
	"slices"
	"strings"
)

// A Part is a separately cached part of the bed: a kernel, the guests' root,
// QEMU, or kernel headers.
type Part string

// The parts of the bed.
const (
	Kernel510       Part = "kernel-5.10"           // Debian 11's kernel, amd64
	Kernel61        Part = "kernel-6.1"            // Debian 12's kernel, amd64
	Kernel612       Part = "kernel-6.12"           // Debian 13's kernel, amd64
	Kernel612SIW    Part = "kernel-6.12-siw"       // Debian 13's kernel with soft-iWARP, built from its source, amd64
	Kernel72        Part = "kernel-7.2"            // the newest backport to Debian 13, amd64
	Kernel612ARM    Part = "kernel-6.12-arm64"     // Debian 13's kernel, arm64
	Kernel612ARM16K Part = "kernel-6.12-16k-arm64" // the same with pages of 16 KiB
	Root            Part = "root"                  // Debian 13 with the C RDMA programs, amd64
	QEMU            Part = "qemu"                  // QEMU for the host, with x86 and arm machines
	Headers         Part = "headers"               // /usr/include of kernel 7.2, for ABI checks
	SSH             Part = "ssh"                   // an ssh server for guests with Root, amd64
	Preload         Part = "preload"               // programs on sockets, librspreload of rdma-core 65, amd64
	Fabric          Part = "fabric"                // libfabric with its headers and programs, for guests with Root, amd64
	Apps            Part = "apps"                  // Root with UCX, Open MPI, NFS and fio, amd64
	Valkey          Part = "valkey"                // Valkey's programs, to run with Root, and its source code, amd64
	layoutVersion        = 3                       // of the trees: increase it when unpacking or fix-ups change
)

// A recipe describes the contents of a part. Every field is part of the
// recipe's hash, and so of the name of its directory.
type recipe struct {
	Suite string // the suite of the packages
	Also  string // a second suite, for dependencies
	Arch  string // Debian architecture

	// Install is what apt is to install; Only is a regular expression for the
	// names of those packages that are downloaded and unpacked ("" for all).
	Install []string
	Only    string

	// Leave is a regular expression for the names of packages that are left out, though others depend on them.
	Leave string `json:",omitempty"`

	// Source is a source package: its upstream archive, of the version of the packages, is unpacked in usr/src.
	Source string `json:",omitempty"`

	// Kernel is the prefix of a kernel package's version. If Install is empty,
	// the newest image package of that kernel is used by its own name, because
	// the metapackage of a suite moves on to the next kernel.
	Kernel string

	// Flavour is the kernel flavour in the names of the image packages, if it
	// is not the architecture.
	Flavour string `json:",omitempty"`

	// Module is a directory of the kernel's sources with a module that the kernel packages lack. It is built with
	// Debian's compiler, from Debian's sources of the same version.
	Module string `json:",omitempty"`

	Drop []string // path prefixes that are left out of the tree
	Keep []string // exceptions to Drop
	Fix  string   // fix-ups instead of the maintainer scripts
}

// kernelPackages matches the packages with the image and its modules; the
// others (initramfs-tools and its dependencies) are for machines that boot from
// disks.
const kernelPackages = `^linux-(image|base|binary|modules)-[0-9]`

// unusedModules are modules that no guest needs.
var unusedModules = []string{"gpu", "media", "sound", "iio", "staging", "input", "hid", "video", "comedi"}

// documentation is not unpacked.
var documentation = []string{
	"usr/share/man/", "usr/share/locale/", "usr/share/info/", "usr/share/doc/",
	"usr/share/lintian/", "usr/share/bash-completion/", "usr/share/bug/",
	"usr/share/icons/", "usr/share/applications/",
}

// rootPackages are the packages of the guests' user land: a small Debian, the C
// programs with which ours are compared, a compiler, and tools that tests use
// in a guest.
var rootPackages = []string{
	"base-files", "base-passwd", "bash", "dash", "coreutils", "util-linux", "mount", "procps",
	"grep", "sed", "mawk", "gzip", "xz-utils", "libc-bin", "hostname", "findutils", "diffutils",
	"kmod", "iproute2", "iputils-ping", "ethtool", "tcpdump", "strace", "netbase", "busybox-static",
	"rdma-core", "ibverbs-utils", "rdmacm-utils", "infiniband-diags", "perftest", "python3-pyverbs", "python3-scapy",
	"nftables",
	"tcc", "libc6-dev", "libibverbs-dev", "librdmacm-dev",
}

// rootLeave matches packages of Perl, in which some scripts of infiniband-diags are written.
const rootLeave = `^(perl|perl-base|perl-modules-.*|libperl5.*|libgdbm.*)$`

// preloadPackages are programs that use TCP, and the libraries with which they
// use RDMA instead. epoll, with which Redis waits, is in librspreload since
// rdma-core 65. The part has a C library and a dynamic linker, because the
// programs need newer ones than those of Root.
var preloadPackages = []string{
	"librdmacm1t64", "ibverbs-providers", "rdmacm-utils", "iperf3", "netcat-openbsd", "redis-server", "redis-tools",
}

// preloadOnly matches these packages and the libraries that they are linked with.
const preloadOnly = `^(librdmacm1t64|libibverbs1|ibverbs-providers|rdmacm-utils|libnl-3-200|libnl-route-3-200` +
	`|iperf3|libiperf0|libsctp1|netcat-openbsd|libbsd0|libmd0|redis-server|redis-tools|libjemalloc2|liblzf1|libatomic1` +
	`|libstdc\+\+6|libgcc-s1|libsystemd0|libssl3t64|libzstd1|zlib1g|libc6)$`

// fabricOnly matches libfabric and the libraries that it is linked with and that Root lacks.
const fabricOnly = `^(libfabric1|libfabric-bin|libfabric-dev|libpsm2-2|libnuma1)$`

// valkeyOnly matches Valkey and the libraries that it is linked with and that Root lacks.
const valkeyOnly = `^(valkey-server|valkey-tools|libjemalloc2|liblzf1|libatomic1|libstdc\+\+6)$`

// appsPackages are programs that use RDMA for a purpose, and the parts of NFS and of storage that the kernel lacks.
var appsPackages = []string{"ucx-utils", "openmpi-bin", "python3-mpi4py", "nfs-kernel-server", "fio"}

// appsLeave matches packages of plug-ins for graphics processors, which load them if they are there, and those that
// scripts of other packages need.
const appsLeave = `^(libamd.*|libhsa.*|libllvm.*|libz3-.*|libdrm.*|ocl-icd-.*|libze1|libx11.*|libxcb1|libxau6` +
	`|libxdmcp6|libxext6|libxnvctrl0|libpciaccess0|libhwloc-plugins|openssh-client|perl-base|debconf|ucf|rpcbind)$`

// recipes returns the recipes of all parts.
func recipes() map[Part]recipe {
	kernel := func(version, suite, also, arch string) recipe {
		return recipe{
			Suite: suite, Also: also, Arch: arch, Kernel: version,
			Only: kernelPackages,
			Drop: append(dropModules(), documentation...),
		}
	}
	arm16K := kernel("6.12.", "trixie", "", "arm64")
	arm16K.Flavour = "arm64-16k"
	siw := kernel("6.12.", "trixie", "", "amd64")
	siw.Only, siw.Module = kernelPackages+"|"+buildPackages, "drivers/infiniband/sw/siw"
	return map[Part]recipe{
		Kernel510:       kernel("5.10.", "bullseye", "", "amd64"),
		Kernel61:        kernel("6.1.", "bookworm", "", "amd64"),
		Kernel612:       kernel("6.12.", "trixie", "", "amd64"),
		Kernel612SIW:    siw,
		Kernel72:        kernel("7.2.", "trixie-backports", "trixie", "amd64"),
		Kernel612ARM:    kernel("6.12.", "trixie", "", "arm64"),
		Kernel612ARM16K: arm16K,
		Root: {
			Suite: "trixie", Arch: "amd64", Install: rootPackages, Leave: rootLeave, Fix: "root",
			Drop: documentation, Keep: []string{"usr/share/doc/rdma-core/tests/"},
		},
		QEMU: {
			Suite: "trixie-backports", Also: "trixie", Arch: hostArch(),
			Install: []string{"qemu-system-x86", "qemu-system-arm"},
			Drop:    documentation,
		},
		Headers: {
			Suite: "trixie-backports", Also: "trixie", Arch: "amd64", Kernel: "7.2.",
			Install: []string{"linux-libc-dev=7.2.*"}, Only: `^linux-libc-dev$`,
			Drop: documentation,
		},
		SSH: {
			Suite: "trixie", Arch: "amd64", Install: []string{"dropbear-bin"},
			Only: `^(dropbear-bin|libtomcrypt1|libtommath1|libgmp10|libcrypt1|zlib1g)$`, Drop: documentation,
		},
		Preload: {
			Suite: "forky", Arch: "amd64", Install: preloadPackages, Only: preloadOnly,
			Fix:  "preload",
			Drop: append([]string{"usr/share/", "usr/lib/x86_64-linux-gnu/gconv/"}, documentation...),
		},
		Fabric: {
			Suite: "trixie", Arch: "amd64", Install: []string{"libfabric-bin", "libfabric-dev"}, Only: fabricOnly,
			Drop: append([]string{"usr/lib/x86_64-linux-gnu/libfabric.a"}, documentation...),
		},
		Valkey: {
			Suite: "trixie", Arch: "amd64", Install: []string{"valkey-server"}, Only: valkeyOnly, Source: "valkey",
			Drop: append([]string{"*/deps/", "*/tests/", "*/utils/"}, documentation...), Keep: []string{"*/tests/rdma/"},
		},
		Apps: {
			Suite: "trixie", Arch: "amd64", Install: slices.Concat(rootPackages, appsPackages), Fix: "root",
			Leave: rootLeave + "|" + appsLeave,
			Drop:  documentation, Keep: []string{"usr/share/doc/rdma-core/tests/"},
		},
	}
}

// Parts returns all parts, in the order in which they are set up.
func Parts() []Part {
	return []Part{
		QEMU, Kernel612, Root, Kernel61, Kernel72, Kernel612ARM, Kernel510, Kernel612ARM16K, Headers, SSH, Preload,
		Valkey, Fabric, Apps, Kernel612SIW,
	}
}

// usual returns the parts that are set up if none is named: those that make test needs. Only comparisons need Fabric,
// and only make test-all needs Apps and Kernel612SIW.
func usual() []Part {
	return slices.DeleteFunc(Parts(), func(p Part) bool { return p == Fabric || p == Apps || p == Kernel612SIW })
}

// dropModules returns the path prefixes of unused modules, in both directories
// where kernel packages have modules. The version is a "*".
func dropModules() []string {
	var drop []string
	for _, dir := range unusedModules {
		for _, top := range []string{"lib/modules/*/kernel/", "usr/lib/modules/*/kernel/"} {
			drop = append(drop, top+"drivers/"+dir+"/")
			if dir == "sound" {
				drop = append(drop, top+"sound/")
			}
		}
	}
	return drop
}

// flavour returns the suffix of the names of the recipe's image packages.
func (r recipe) flavour() string {
	if r.Flavour != "" {
		return r.Flavour
	}
	return r.Arch
}

// suites returns the suites of a recipe.
func (r recipe) suites() []string {
	if r.Also == "" {
		return []string{r.Suite}
	}
	return []string{r.Suite, r.Also}
}

// dir returns the name of the part's directory in the cache.
func (r recipe) dir(p Part) string {
	return string(p) + "-" + r.hash()
}

// hash returns a hash of the recipe.
func (r recipe) hash() string {
	text, err := json.Marshal(struct {
		Layout int
		Recipe recipe
	}{layoutVersion, r})
	if err != nil {
		panic(err) // a struct of strings can always be encoded
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:6])
}

// recipeOf returns the recipe of a part.
func recipeOf(p Part) (recipe, error) {
	r, ok := recipes()[p]
	if !ok {
		return recipe{}, fmt.Errorf("bed: no part %q; the parts are %v", p, Parts())
	}
	return r, nil
}

// KernelPart returns the part with a kernel: "5.10", "6.1", "6.12" or "7.2" for
// amd64 (also ""), "6.12" or "6.12-16k" for arm64.
func KernelPart(version, arch string) (Part, error) {
	p := Part("kernel-" + version)
	if arch != "" && arch != "amd64" {
		p += Part("-" + arch)
	}
	if _, ok := recipes()[p]; !ok {
		return "", fmt.Errorf("bed: no kernel %q for %q; there are %s", version, arch, Kernels())
	}
	return p, nil
}

// Kernels returns the list of the kernels for messages, oldest first.
func Kernels() string {
	var have []string
	for p, r := range recipes() {
		version, ok := strings.CutPrefix(string(p), "kernel-")
		if version, arm := strings.CutSuffix(version, "-arm64"); ok && arm {
			have = append(have, version+" for arm64")
		} else if ok && r.Arch == "amd64" {
			have = append(have, version)
		}
	}
	slices.SortFunc(have, func(a, b string) int {
		v, _, _ := strings.Cut(a, " ")
		w, _, _ := strings.Cut(b, " ")
		return cmp.Or(slices.Compare(numbers(v), numbers(w)), strings.Compare(a, b))
	})
	return strings.Join(have, ", ")
}

// hostArch returns the Debian name of the host's architecture.
func hostArch() string {
	return runtime.GOARCH // amd64 and arm64 have the same names
}
