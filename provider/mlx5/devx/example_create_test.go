package devx_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"log"

	"github.com/goverbs/goverbs/provider/mlx5/devx"
	"github.com/goverbs/goverbs/uverbs"
)

// CREATE_GENERAL_OBJECT creates a block of QP numbers that no QP has. The object exists until Close, or Close of the
// Context. A command that the device refuses has a status.
func ExampleCreate() {
	dev, err := uverbs.Open("")
	if err != nil {
		log.Fatal(err)
	}
	defer dev.Close()

	const createGeneralObject, reservedQPNs = 0xa00, 0x2c
	create := func(log2OfNumber byte) (*devx.Obj, uint32, error) {
		in, out := make([]byte, 16), make([]byte, 16)
		binary.BigEndian.PutUint16(in, createGeneralObject)
		binary.BigEndian.PutUint16(in[6:], reservedQPNs)
		in[12] = log2OfNumber
		obj, err := devx.Create(dev, in, out)
		return obj, binary.BigEndian.Uint32(out[8:]), err
	}
	obj, first, err := create(6)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("64 numbers, a multiple of 64: %v\n", first%64 == 0)
	fmt.Println(obj.Close())

	_, _, err = create(31) // too many
	var refused *devx.StatusError
	if errors.As(err, &refused) {
		fmt.Printf("command %#x: status %d\n", refused.Opcode, refused.Status)
	}
	// Output:
	// 64 numbers, a multiple of 64: true
	// <nil>
	// command 0xa00: status 3
}
