package connectx

import "github.com/goverbs/goverbs/internal/sim/connectx/prm"

// numbers allocates the numbers of objects that consist of a number only.
type numbers struct {
	kind        string
	first, size uint32
	next        uint32
	used        map[uint32]bool
}

func newNumbers(kind string, first, size uint32) numbers {
	return numbers{kind: kind, first: first, size: size, used: make(map[uint32]bool)}
}

// add allocates a number. The last one is reused only after all others.
func (n *numbers) add() (uint32, error) {
	if uint32(len(n.used)) >= n.size {
		return 0, refuse(statusLimit, reasonTooMany)
	}
	for {
		v := n.first + n.next
		n.next = (n.next + 1) % n.size
		if !n.used[v] {
			n.used[v] = true
			return v, nil
		}
	}
}

func (n *numbers) has(v uint32) bool { return n.used[v] }

// remove frees a number.
func (n *numbers) remove(v uint32) error {
	if !n.used[v] {
		return refuse(statusBadResource, reasonUnknown)
	}
	delete(n.used, v)
	return nil
}

// alloc executes a command that allocates a number.
func (n *numbers) alloc(f prm.Field, out []byte) error {
	v, err := n.add()
	if err == nil {
		f.Set(out, uint64(v))
	}
	return err
}
