//go:build !(linux && (amd64 || arm64))

package uapi

// goverbs needs Linux, and barriers written for the architecture.
const _ = goverbs_runs_on_64_bit_little_endian_Linux_amd64_and_arm64_only
