package ioctltest

import "github.com/goverbs/goverbs/internal/uapi"

// bnxtHandlers has the methods of bnxt_re. The rest of them is in its part of the kernel.
var bnxtHandlers = map[string]func(*Kernel, *Msg) error{
	"PAGE.ALLOC": (*Kernel).allocPage,
	"PAGE.DESTROY": func(k *Kernel, m *Msg) error {
		return k.destroy(m, "page", uapi.BNXT_RE_DESTROY_PAGE_HANDLE)
	},
	"PACING.NOTIFY":  func(*Kernel, *Msg) error { return nil },
	"TOGGLE_MEM.GET": (*Kernel).getToggleMem,
	"TOGGLE_MEM.DESTROY": func(k *Kernel, m *Msg) error {
		return k.destroy(m, "toggle memory", uapi.BNXT_RE_RELEASE_TOGGLE_MEM_HANDLE)
	},
}

// allocPage allocates a page of bnxt_re, which its part of the kernel describes in the reply.
func (k *Kernel) allocPage(m *Msg) error {
	m.Made(uapi.BNXT_RE_ALLOC_PAGE_HANDLE, int(k.make(&object{kind: "page"})))
	return nil
}

// getToggleMem is like allocPage.
func (k *Kernel) getToggleMem(m *Msg) error {
	m.Made(uapi.BNXT_RE_TOGGLE_MEM_HANDLE, int(k.make(&object{kind: "toggle memory"})))
	return nil
}
