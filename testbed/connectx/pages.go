package connectx

import "github.com/goverbs/goverbs/internal/connectx/prm"

// maxPages bounds the number of pages given to the firmware.
const maxPages = 1 << 16

const pageSize = 4096

// Operations of MANAGE_PAGES and QUERY_PAGES.
const (
	pagesCannotGive = 0
	pagesGive       = 1
	pagesTake       = 2

	pagesBoot    = 1
	pagesInit    = 2
	pagesRegular = 3
)

// A pageManager has the pages of the host's memory given to the firmware, which
// does not use them.
type pageManager struct {
	held   []uint64
	owned  map[uint64]bool
	wanted int // requested by RequestPages and not given yet
}

func (d *Device) queryPages(in, out []byte) error {
	n := 0
	switch prm.CmdOpMod.Get(in) {
	case pagesBoot:
		n = max(0, d.config.BootPages-len(d.pages.held))
	case pagesInit:
		n = max(0, d.config.BootPages+d.config.InitPages-len(d.pages.held))
	case pagesRegular:
		n = d.pages.wanted
	default:
		return refuse(statusBadParam, reasonOpMod)
	}
	prm.QueryPagesOutNumPages.Set(out, uint64(n))
	return nil
}

func (d *Device) managePages(in, out []byte) error {
	if prm.ManagePagesInFunctionID.Is(in) || prm.ManagePagesInEmbeddedCPUFunction.Is(in) {
		return refuse(statusBadParam, reasonPort)
	}
	n := int(prm.ManagePagesInInputNumEntries.Get(in))
	switch prm.CmdOpMod.Get(in) {
	case pagesCannotGive:
		d.pages.wanted = 0
		return nil
	case pagesGive:
		return d.givePages(n, in)
	case pagesTake:
		return d.takePages(n, out)
	}
	return refuse(statusBadParam, reasonOpMod)
}

// givePages accepts n pages of the host, all or none.
func (d *Device) givePages(n int, in []byte) error {
	p := &d.pages
	if n > (len(in)-prm.ManagePagesIn.Size)/8 {
		return refuse(statusBadInputLength, reasonLength)
	}
	if len(p.held)+n > maxPages {
		return refuse(statusLimit, reasonTooMany)
	}
	if p.owned == nil {
		p.owned = make(map[uint64]bool)
	}
	for i := range n {
		addr := prm.ManagePagesInPAS.At(i).Get(in)
		_, err := d.view(addr, pageSize)
		if err != nil || addr%pageSize != 0 || p.owned[addr] {
			for _, a := range p.held[len(p.held)-i:] {
				delete(p.owned, a)
			}
			p.held = p.held[:len(p.held)-i]
			return refuse(statusBadParam, reasonPage)
		}
		p.held, p.owned[addr] = append(p.held, addr), true
	}
	p.wanted = max(0, p.wanted-n)
	return nil
}

// takePages returns up to n pages to the host, as many as fit into the output
// and are not needed.
func (d *Device) takePages(n int, out []byte) error {
	p := &d.pages
	n = min(n, len(p.held), (len(out)-prm.ManagePagesOut.Size)/8)
	if d.running {
		n = min(n, len(p.held)-d.config.BootPages-d.config.InitPages)
	}
	n = max(n, 0)
	for i := range n {
		last := len(p.held) - 1
		prm.ManagePagesOutPAS.At(i).Set(out, p.held[last])
		delete(p.owned, p.held[last])
		p.held = p.held[:last]
	}
	prm.ManagePagesOutOutputNumEntries.Set(out, uint64(n))
	return nil
}

// PagesHeld returns the number of the host's pages given to the device.
func (d *Device) PagesHeld() int { return len(d.pages.held) }

// RequestPages makes the firmware request n more pages from the running driver.
// A negative n returns pages.
func (d *Device) RequestPages(n int32) {
	if n > 0 {
		d.pages.wanted = min(maxPages, d.pages.wanted+int(n))
	}
	e := newEvent(eventPageRequest)
	prm.EQENumPages.Set(e, uint64(uint32(n)))
	d.postAll(e, eventPageRequest)
}
