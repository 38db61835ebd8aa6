package rxe

// atomic executes the WQE of an atomic and returns its status.
func (k *kernel) atomic(op uint32, w []byte) uint32 {
	raddr, compareAdd, swap, rk := le.Uint64(w[24:]), le.Uint64(w[32:]), le.Uint64(w[40:]), le.Uint32(w[48:])
	if le.Uint64(w[152:]) != raddr || le.Uint32(w[52:]) != 0 || le.Uint32(w[184:]) != 8 {
		panic("test: no WQE of an atomic")
	}
	switch {
	case !k.inside(raddr, 8, rk, rkey):
		return 10 // remote access error
	case raddr%8 != 0:
		return 9 // remote invalid request error
	}
	there := k.at(raddr, 8)
	was := append([]byte{}, there...)
	switch value := le.Uint64(there); {
	case op == 6:
		le.PutUint64(there, value+compareAdd)
	case value == compareAdd:
		le.PutUint64(there, swap)
	}
	if !k.scatter(w[208:], le.Uint32(w[196:]), was) {
		return 4 // local protection error
	}
	return 0
}
