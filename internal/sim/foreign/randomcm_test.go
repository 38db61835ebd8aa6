package foreign_test

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"golang.org/x/sys/unix"
)

// The sizes of rdma_cm's commands without their headers.
var cmSizes = map[uint32]int{0: 24, 1: 16, 4: 8, 6: 288, 7: 8, 8: 296, 9: 264, 10: 4, 11: 16, 12: 8, 14: 24, 15: 8,
	17: 16, 18: 16, 19: 16, 20: 136, 21: 272, 22: 152, 23: 88, 24: 320}

const nodeCM = 1

// Random commands of rdma_cm end in an errno or do what they say. Nothing remains of them.
func TestRandomCM(t *testing.T) {
	const writeCM, rounds = 6, 20000
	for seed := range uint64(2) {
		s := start(t)
		c := dial(t, s)
		if errno, _ := c.call(opOpen, nodeCM, 0, nil); errno != 0 {
			t.Fatal(errno)
		}
		r := rand.New(rand.NewPCG(seed, 1))
		done := map[uint32]int{}
		for range rounds {
			number := r.Uint32N(26)
			if n := c.randomFrame(r, number); n > 0 {
				if errno, _ := c.call(writeCM, addressOf(c.memory), uint64(n), nil); errno == 0 {
					done[number]++
				}
			}
		}
		for _, number := range []uint32{0, 1, 7, 19, 20, 21} { // create, destroy, listen, query, bind, resolve
			if done[number] == 0 {
				t.Errorf("seed %d: no command %d has succeeded: %v", seed, number, done)
			}
		}
		must(t, c.conn.Close())
		idle(t, s)
	}
}

// randomFrame writes a command, and returns its size.
func (c *client) randomFrame(r *rand.Rand, number uint32) int {
	size := cmSizes[number]
	if r.IntN(50) == 0 {
		size = r.IntN(1200)
	}
	b := c.memory[:2048]
	for i := 8; i < 8+size; i += 4 {
		values := [...]uint32{0, r.Uint32N(8), r.Uint32N(300), r.Uint32()}
		binary.NativeEndian.PutUint32(b[i:], values[r.IntN(4)&r.IntN(4)])
	}
	binary.NativeEndian.PutUint32(b, number)
	binary.NativeEndian.PutUint16(b[4:], uint16(size))
	binary.NativeEndian.PutUint16(b[6:], uint16(r.IntN(2)*r.IntN(1000)))
	at := addressOf(c.memory) + 1<<16
	switch number { // where the address of the reply is, and what makes the command likely to succeed
	case 0:
		binary.NativeEndian.PutUint64(b[8:], 1+r.Uint64N(9))
		binary.NativeEndian.PutUint64(b[16:], at)
		binary.NativeEndian.PutUint16(b[24:], uint16([]int{0x106, 0x111}[r.IntN(2)]))
		binary.NativeEndian.PutUint16(b[6:], 4)
	case 1, 11, 12, 17, 18, 19:
		binary.NativeEndian.PutUint64(b[8:], at)
		binary.NativeEndian.PutUint16(b[6:], 400)
	case 14:
		binary.NativeEndian.PutUint64(b[8:], at)
		binary.NativeEndian.PutUint16(b[6:], 0)
	case 22:
		binary.NativeEndian.PutUint64(b[8:], at)
		binary.NativeEndian.PutUint16(b[6:], 4)
	case 20, 21:
		binary.NativeEndian.PutUint16(b[6:], 0)
		c.randomAddresses(r, b, number)
	default:
		binary.NativeEndian.PutUint16(b[6:], 0)
	}
	return 8 + size
}

// randomAddresses writes the addresses of BIND or RESOLVE_ADDR.
func (c *client) randomAddresses(r *rand.Rand, b []byte, number uint32) {
	addr := func(at int) {
		binary.NativeEndian.PutUint16(b[at:], unix.AF_INET)
		binary.BigEndian.PutUint16(b[at+2:], uint16(r.IntN(3))*7471)
		copy(b[at+4:], [][]byte{{192, 0, 2, 1}, {0, 0, 0, 0}, {192, 0, 2, 9}}[r.IntN(3)])
	}
	if r.IntN(4) == 0 {
		return
	}
	if number == 20 { // id, size, reserved, address
		binary.NativeEndian.PutUint16(b[12:], 16)
		binary.NativeEndian.PutUint16(b[14:], 0)
		addr(16)
		return
	}
	// id, timeout, sizes of both addresses, reserved, addresses
	binary.NativeEndian.PutUint16(b[16:], 0)
	binary.NativeEndian.PutUint16(b[18:], 16)
	binary.NativeEndian.PutUint32(b[20:], 0)
	addr(24 + 128)
}
