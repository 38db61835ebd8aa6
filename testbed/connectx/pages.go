package connectx

import "github.com/goverbs/goverbs/internal/sim/connectx/prm"

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
	addrs     []uint64
	owned     map[uint64]bool
	requested int // requested by RequestPages and not given yet
}

func (d *Device) queryPages(in, out []byte) error {
	n := 0
	switch prm.CmdOpMod.Get(in) {
	case pagesBoot:
		n = max(0, d.config.BootPages-len(d.pages.addrs))
	case pagesInit:
		n = max(0, d.config.BootPages+d.config.InitPages-len(d.pages.addrs))
	case pagesRegular:
		n = d.pages.requested
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
		d.pages.requested = 0
		return nil
	case pagesGive:
		return d.addPages(n, in)
	case pagesTake:
		return d.returnPages(n, out)
	}
	return refuse(statusBadParam, reasonOpMod)
}

// addPages accepts n pages of the host, all or none.
func (d *Device) addPages(n int, in []byte) error {
	p := &d.pages
	if n > (len(in)-prm.ManagePagesIn.Size)/8 {
		return refuse(statusBadInputLength, reasonLength)
	}
	if len(p.addrs)+n > maxPages {
		return refuse(statusLimit, reasonTooMany)
	}
	if p.owned == nil {
		p.owned = make(map[uint64]bool)
	}
	for i := range n {
		addr := prm.ManagePagesInPAS.At(i).Get(in)
		_, err := d.view(addr, pageSize)
		if err != nil || addr%pageSize != 0 || p.owned[addr] {
			for _, a := range p.addrs[len(p.addrs)-i:] {
				delete(p.owned, a)
			}
			p.addrs = p.addrs[:len(p.addrs)-i]
			return refuse(statusBadParam, reasonPage)
		}
		p.addrs, p.owned[addr] = append(p.addrs, addr), true
	}
	p.requested = max(0, p.requested-n)
	return nil
}

// returnPages returns up to n pages to the host, as many as fit into the output
// and are not needed.
func (d *Device) returnPages(n int, out []byte) error {
	p := &d.pages
	n = min(n, len(p.addrs), (len(out)-prm.ManagePagesOut.Size)/8)
	if d.running {
		n = min(n, len(p.addrs)-d.config.BootPages-d.config.InitPages)
	}
	n = max(n, 0)
	for i := range n {
		last := len(p.addrs) - 1
		prm.ManagePagesOutPAS.At(i).Set(out, p.addrs[last])
		delete(p.owned, p.addrs[last])
		p.addrs = p.addrs[:last]
	}
	prm.ManagePagesOutOutputNumEntries.Set(out, uint64(n))
	return nil
}

// PagesHeld returns the number of the host's pages given to the device.
func (d *Device) PagesHeld() int { return len(d.pages.addrs) }

// RequestPages makes the firmware request n more pages from the running driver.
// A negative n returns pages.
func (d *Device) RequestPages(n int32) {
	if n > 0 {
		d.pages.requested = min(maxPages, d.pages.requested+int(n))
	}
	e := newEvent(eventPageRequest)
	prm.EQENumPages.Set(e, uint64(uint32(n)))
	d.postAll(e, eventPageRequest)
}
