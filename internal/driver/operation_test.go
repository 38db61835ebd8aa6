package driver

import "testing"

// TestOperationTraits checks that the traits of each operation fit together, and that opcodes can be
// limited by a mask.
func TestOperationTraits(t *testing.T) {
	if Opcodes&(Opcodes-1) != 0 {
		t.Errorf("%d is not a power of two", Opcodes)
	}
	for op, o := range Operations {
		switch has := func(t OpTraits) bool { return o.Traits&t != 0 }; {
		case o.Name == "" && o != Operation{}:
			t.Errorf("opcode %d has no name", op)
		case o.Name == "":
		case o.QPs == 0, has(OpScatter) && !has(OpRemote), has(OpOperands) && !has(OpScatter), has(OpImm) && has(OpKey),
			has(OpBare) && has(OpScatter), o.Traits >= OpTraitsEnd:
			t.Errorf("%s: %+v", o.Name, o)
		}
	}
}
