package devx_test

import (
	"encoding/binary"
	"fmt"
	"log"

	_ "github.com/goverbs/goverbs/provider/mlx5"
	"github.com/goverbs/goverbs/provider/mlx5/devx"
	"github.com/goverbs/goverbs/uverbs"
)

// QUERY_HCA_CAP returns the capabilities of the device. The offsets are those of the programmer's reference manual.
func ExampleCommand() {
	dev, err := uverbs.Open("")
	if err != nil {
		log.Fatal(err)
	}
	defer dev.Close()

	const (
		queryHCACap    = 0x100
		general        = 0    // the group of capabilities
		current        = 1    // those that are in use
		numberOfLAGs   = 0x4f // of cmd_hca_cap: num_lag_ports, the lower half of the byte
		lengthOfHeader = 16
	)
	in := make([]byte, 16)
	binary.BigEndian.PutUint16(in, queryHCACap)
	binary.BigEndian.PutUint16(in[6:], general<<1|current)
	out := make([]byte, lengthOfHeader+4096)
	if err := devx.Command(dev, in, out); err != nil {
		log.Fatal(err)
	}
	caps := out[lengthOfHeader:]
	fmt.Println("ports that can be aggregated:", caps[numberOfLAGs]&0xf)
	// Output: ports that can be aggregated: 2
}
