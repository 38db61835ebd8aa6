package uverbs

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/goverbs/goverbs/internal/ioctl"
	"github.com/goverbs/goverbs/internal/uapi"
	"golang.org/x/sys/unix"
)

// An Advice announces how memory will be used. The values are those of
// ib_uverbs_advise_mr_advice.
type Advice uint32

// The kinds of advice of ibv_advise_mr(3).
const (
	AdvicePrefetch        Advice = 0 // fault the pages in for reading
	AdvicePrefetchWrite   Advice = 1 // fault the pages in for writing
	AdvicePrefetchNoFault Advice = 2 // map the pages that are already in memory
)

func (a Advice) String() string {
	names := [...]string{"prefetch", "prefetch to write", "prefetch without faults"}
	if int(a) < len(names) {
		return names[a]
	}
	return "advice " + itoa(uint64(a))
}

// AdviseFlags change how an advice is carried out. The values are those of
// IBV_ADVISE_MR_FLAG_*.
type AdviseFlags uint32

// AdviseFlush makes the call wait until the advice has been carried out. Without it the call
// may return earlier, and errors that happen after that are not reported.
const AdviseFlush AdviseFlags = 1 << 0

const (
	sgeSize = 16
	// maxAdvised is how many entries fit in an attribute, whose size has 16 bits.
	maxAdvised = 0xffff / sgeSize
	// advisedChunk is the largest length in one entry of a command. The length has 32 bits. A
	// power of two makes every chunk of a page-aligned range begin at a page.
	advisedChunk = 1 << 31
)

// An MRRange is Len bytes from offset Off of an MR.
type MRRange struct {
	MR       *MR
	Off, Len int
}

const opAdvise = "advise on memory"

// AdviseMR tells the device how ranges of on-demand memory of the PD will be used:
// ibv_advise_mr(3). It accepts up to 4095 ranges of any length. Long ranges need more than one
// command.
//
// It returns [ErrNotSupported] if the device does not support advice, or not this one,
// [ErrRange] if a range is outside its MR, and [ErrInvalid] if the memory belongs to another PD
// or was registered without OnDemand.
func (p *PD) AdviseMR(advice Advice, flags AdviseFlags, ranges ...MRRange) error {
	if len(ranges) == 0 || len(ranges) > maxAdvised {
		return invalid(opAdvise, p.String(), "the number of ranges must be 1 to "+sitoa(maxAdvised)+": "+sitoa(len(ranges)))
	}
	var views []*mrView
	for i, r := range ranges {
		v, err := p.advised(i, r)
		if err != nil {
			return err
		}
		views = append(views, v)
	}
	err := p.adviseAll(advice, flags, ranges, views)
	if errors.Is(err, ErrInvalid) { // also what the kernel returns for a region that has been closed meanwhile
		for i, r := range ranges {
			if _, closed := p.advised(i, r); closed != nil {
				return closed
			}
		}
	}
	return err
}

// adviseAll splits the ranges into chunks and issues as many commands as they need.
func (p *PD) adviseAll(advice Advice, flags AdviseFlags, ranges []MRRange, views []*mrView) error {
	list := make([]byte, 0, min(len(ranges), maxAdvised)*sgeSize)
	for i, r := range ranges {
		addr, left := views[i].addr+uint64(r.Off), uint64(r.Len)
		for first := true; left > 0 || first; first = false { // an empty range gets an entry too
			n := min(left, advisedChunk)
			if len(list) == maxAdvised*sgeSize {
				if err := p.advise(advice, flags, list); err != nil {
					return err
				}
				list = list[:0]
			}
			list = binary.NativeEndian.AppendUint64(list, addr)
			list = binary.NativeEndian.AppendUint32(list, uint32(n))
			list = binary.NativeEndian.AppendUint32(list, views[i].lkey)
			addr, left = addr+n, left-n
		}
	}
	return p.advise(advice, flags, list)
}

// advised checks a range. It does not leave it to the kernel to check that the memory is
// on-demand: rxe of Linux 7.2 does not check it, and misbehaves if it is not.
func (p *PD) advised(i int, r MRRange) (*mrView, error) {
	if r.MR == nil {
		return nil, &Error{Op: opAdvise, Object: p.String(), Kind: ErrRange, Errno: unix.EINVAL,
			Detail: "range " + sitoa(i) + " has no MR"}
	}
	v := r.MR.view.Load()
	switch {
	case v.room == closedRoom:
		return nil, &Error{Op: opAdvise, Object: p.String(), Kind: ErrRange, Errno: unix.EINVAL,
			Detail: "the memory region of range " + sitoa(i) + " is closed"}
	case r.Off < 0 || r.Len < 0 || int64(r.Off) > v.room-int64(r.Len):
		return nil, &Error{Op: opAdvise, Object: p.String(), Kind: ErrRange, Errno: unix.EINVAL,
			Detail: fmt.Sprintf("range %d, %d bytes from offset %d, is outside its memory region of %d bytes", i, r.Len,
				r.Off, v.room)}
	case r.MR.PD().base() != p.base():
		return nil, invalid(opAdvise, p.String(),
			"range "+sitoa(i)+" is of "+r.MR.reg.String()+", which belongs to another PD")
	case !v.onDemand:
		return nil, invalid(opAdvise, p.String(),
			"range "+sitoa(i)+" is of "+r.MR.reg.String()+", which was registered without OnDemand")
	}
	return v, nil
}

func (p *PD) advise(advice Advice, flags AdviseFlags, list []byte) error {
	if !p.ctx.creating.begin() { // makes the Context's Close wait
		return &Error{Op: opAdvise, Object: p.ctx.name, Kind: ErrClosed}
	}
	defer p.ctx.creating.end()
	if err := p.hold(); err != nil { // makes the PD's Close fail with ErrBusy meanwhile
		return &Error{Op: opAdvise, Object: p.String(), Kind: err}
	}
	defer p.drop()
	cmd := ioctl.Get()
	defer cmd.Put()
	cmd.Start(uapi.UVERBS_OBJECT_MR, uapi.UVERBS_METHOD_ADVISE_MR)
	cmd.Handle(uapi.UVERBS_ATTR_ADVISE_MR_PD_HANDLE, p.handle)
	cmd.Uint64(uapi.UVERBS_ATTR_ADVISE_MR_ADVICE, uint64(advice))
	cmd.Uint32(uapi.UVERBS_ATTR_ADVISE_MR_FLAGS, uint32(flags))
	cmd.InRef(uapi.UVERBS_ATTR_ADVISE_MR_SGE_LIST, list)
	return p.explainAdvise(advice, p.ctx.dev.Do(cmd))
}

func (p *PD) explainAdvise(advice Advice, err error) error {
	detail := ""
	switch errnoOf(err) {
	case unix.EOPNOTSUPP:
		detail = "the device does not accept the advice to " + advice.String() +
			": it needs on-demand paging (DeviceAttr.ODP)"
	case unix.EINVAL:
		detail = "the memory lacks LocalWrite, or the flags are unknown"
	case unix.EPERM:
		detail = "memory without LocalWrite is not prefetched to be written"
	case unix.EFAULT:
		detail = "the pages cannot be brought in: the range is not mapped, or not with these rights"
	}
	return p.ctx.wrap(opAdvise, p.String(), err, detail)
}
