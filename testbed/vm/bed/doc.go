// Package bed sets up the parts of the tests' guests: stock Debian kernels, a
// small Debian root with the C RDMA programs, and a QEMU.
//
// # Set-up
//
// A private apt (with separate configuration, lists and an empty package
// database) resolves and downloads the packages, and verifies them with
// Debian's archive keys; dpkg-deb unpacks them. No package is installed, no
// maintainer script runs, and neither root nor a namespace is needed. The
// mirror is that of the machine's apt, or GOVERBS_BED_MIRROR.
//
// # Cache
//
// All parts are in ${XDG_CACHE_HOME:-~/.cache}/goverbs-bed, or in
// GOVERBS_BED_CACHE: about 1.5 GB. The name of each part's directory ends in a
// hash of its recipe (packages.go), so that a changed recipe gets a new
// directory and never modifies an old one. A part is renamed to its final name
// when it is complete. Parts are updated only by Update.
package bed
