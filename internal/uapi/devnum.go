package uapi

// HugeDecodeDev splits a device number in the encoding of RDMA netlink
// (RDMA_NLDEV_ATTR_CHARDEV): the low 8 bits of the minor number, 12 bits of the
// major number, then the rest of the minor number.
func HugeDecodeDev(v uint64) (major, minor uint32) {
	return uint32(v&0xfff00) >> 8, uint32(v&0xff) | uint32(v>>12)&0xfff00
}
