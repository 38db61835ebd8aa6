// Package bed sets up what the tests' guests are made of: stock Debian
// kernels, a small Debian root with the C RDMA programs, and a QEMU.
//
// # What happens
//
// A private apt (its own configuration, lists and an empty package database)
// resolves and downloads the packages, and checks them against Debian's
// archive keys; dpkg-deb takes them apart. No package is installed, no
// maintainer script runs, and neither root nor a namespace is needed. The
// mirror is the one that the machine's apt uses, or GOVERBS_BED_MIRROR.
//
// # Cache
//
// Everything lies in ${XDG_CACHE_HOME:-~/.cache}/goverbs-bed, or in
// GOVERBS_BED_CACHE: about 1.5 GB. Each part has a directory whose name ends in
// a hash of its recipe (packages.go), so that a changed recipe makes a new
// directory and never edits an old one. A part appears by a rename when it is
// whole. Nothing refreshes by itself: Update does, when asked.
package bed
