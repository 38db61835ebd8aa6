//go:build !linux || !(amd64 || arm64)

package mmio

// A wrong barrier loses or tears work requests under load. On an architecture
// without barriers written for it, the package therefore does not build.
const _ = goverbs_supports_64_bit_little_endian_linux_amd64_and_arm64_only
