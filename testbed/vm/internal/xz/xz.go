// Package xz decompresses xz files as created by the kernel's build (.ko.xz):
// one or more blocks with only the LZMA2 filter, with CRC32 or CRC64.
package xz

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"hash/crc64"
)

// ErrFormat means that the input is not an xz file of the supported kind.
var ErrFormat = errors.New("xz: damaged or unsupported data")

// maxSize bounds the decompressed size of a file.
const maxSize = 1 << 30

const (
	headerMagic = "\xfd7zXZ\x00"
	filterLZMA2 = 0x21
	checkNone   = 0
	checkCRC32  = 1
	checkCRC64  = 4
)

var crc64Table = crc64.MakeTable(crc64.ECMA)

// Decode decompresses a whole xz stream.
func Decode(in []byte) ([]byte, error) {
	if len(in) < 12 || string(in[:6]) != headerMagic || crc32.ChecksumIEEE(in[6:8]) != binary.LittleEndian.Uint32(in[8:]) {
		return nil, fmt.Errorf("%w: no stream header", ErrFormat)
	}
	check := in[7]
	if in[6] != 0 || (check != checkNone && check != checkCRC32 && check != checkCRC64) {
		return nil, fmt.Errorf("%w: check type %d", ErrFormat, check)
	}
	in = in[12:]
	var out []byte
	for {
		if len(in) == 0 {
			return nil, fmt.Errorf("%w: no index", ErrFormat)
		}
		if in[0] == 0 { // the index: all blocks are decoded
			return out, nil
		}
		used, err := decodeBlock(in, check, &out)
		if err != nil {
			return nil, err
		}
		in = in[used:]
	}
}

// decodeBlock appends the data of a block, and returns the block's length.
func decodeBlock(in []byte, check byte, out *[]byte) (int, error) {
	head := (int(in[0]) + 1) * 4
	if head > len(in) || crc32.ChecksumIEEE(in[:head-4]) != binary.LittleEndian.Uint32(in[head-4:]) {
		return 0, fmt.Errorf("%w: block header", ErrFormat)
	}
	if err := checkFilters(in[1 : head-4]); err != nil {
		return 0, err
	}
	start := len(*out)
	used, err := decodeLZMA2(in[head:], out)
	if err != nil {
		return 0, err
	}
	end := (head + used + 3) &^ 3
	size := map[byte]int{checkNone: 0, checkCRC32: 4, checkCRC64: 8}[check]
	if end+size > len(in) {
		return 0, fmt.Errorf("%w: truncated", ErrFormat)
	}
	if !checkSum(check, (*out)[start:], in[end:end+size]) {
		return 0, fmt.Errorf("%w: checksum", ErrFormat)
	}
	return end + size, nil
}

// checkFilters checks that LZMA2 is the only filter of a block.
func checkFilters(head []byte) error {
	flags, rest := head[0], head[1:]
	for _, present := range []byte{0x40, 0x80} { // compressed and uncompressed size
		if flags&present != 0 {
			_, n := binary.Uvarint(rest)
			if n <= 0 {
				return fmt.Errorf("%w: block size", ErrFormat)
			}
			rest = rest[n:]
		}
	}
	if flags&0x3f != 0 || len(rest) < 3 || rest[0] != filterLZMA2 || rest[1] != 1 {
		return fmt.Errorf("%w: a filter other than LZMA2", ErrFormat)
	}
	return nil
}

func checkSum(check byte, data, want []byte) bool {
	switch check {
	case checkCRC32:
		return crc32.ChecksumIEEE(data) == binary.LittleEndian.Uint32(want)
	case checkCRC64:
		return crc64.Checksum(data, crc64Table) == binary.LittleEndian.Uint64(want)
	}
	return true
}
