package engine

// A Place is what happened in another line of the program than that of the post: it explains a violation.
type Place struct {
	What   string
	Origin Origin // nil if unknown
}

// maxFates bounds the number of keys whose end is recorded.
const maxFates = 1 << 12

// fates has the reasons why keys are no longer valid: see Config.Program.
type fates struct {
	of    map[uint32]Place
	order []uint32 // the keys, oldest first, as a ring from maxFates keys on
	next  int      // in the ring
}

// ended records why a key is no longer valid. A later reason does not replace the first.
func (h *HCA) ended(key uint32, what string) {
	f := &h.fates
	if _, known := f.of[key]; known || !h.config.Program {
		return
	}
	if f.of == nil {
		f.of = make(map[uint32]Place)
	}
	if len(f.order) < maxFates {
		f.order = append(f.order, key)
	} else {
		delete(f.of, f.order[f.next])
		f.order[f.next] = key
		f.next = (f.next + 1) % maxFates
	}
	f.of[key] = Place{what, h.origin()}
}

// Replaced records that a region has been registered anew with another key.
func (h *HCA) Replaced(old *MKey, key uint32) {
	h.ended(old.Key(), "the region was registered anew with key "+hex(key))
}

// begun records that a key is valid again.
func (h *HCA) begun(key uint32) { delete(h.fates.of, key) }

// fate returns why a key is no longer valid, if that is known.
func (h *HCA) fate(key uint32) []Place {
	if p, known := h.fates.of[key]; known {
		return []Place{p}
	}
	return nil
}

// closed describes the destruction of a key.
func (k *MKey) closed() string {
	if k.UMR {
		return "the window was closed"
	}
	return "the region was closed"
}
