//go:build !linux || !(amd64 || arm64)

package mmio

// A wrong barrier shows as lost or torn work requests under load. So a machine
// whose barriers nobody has written down does not build.
const _ = goverbs_supports_64_bit_little_endian_linux_amd64_and_arm64_only
