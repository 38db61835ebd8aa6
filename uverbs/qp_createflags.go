package uverbs

import (
	"fmt"

	"github.com/goverbs/goverbs/internal/driver"
)

// QPCreateFlags are optional features of a QP. The values are those of
// ibv_qp_create_flags. Those of raw packet QPs are in package ether.
type QPCreateFlags uint32

// QPBlockSelfMcastLoopback keeps a QP from receiving its own multicast packets: see
// ibv_create_qp_ex(3).
const QPBlockSelfMcastLoopback QPCreateFlags = 1 << 1

const createFlags = QPBlockSelfMcastLoopback | driver.QPScatterFCS | driver.QPCVLANStripping |
	driver.QPPCIWriteEndPadding

func checkCreateFlags(op string, on *object, f QPCreateFlags) error {
	if extra := f &^ createFlags; extra != 0 {
		return invalid(op, on.String(), fmt.Sprintf("CreateFlags has unknown bits: %#x", uint32(extra)))
	}
	return nil
}
