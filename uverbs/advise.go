package uverbs

import (
	"encoding/binary"
	"errors"

	"github.com/goverbs/goverbs/internal/ioctl"
	"github.com/goverbs/goverbs/internal/uapi"
	"golang.org/x/sys/unix"
)

// An Advice says how memory will be used. The values are those of
// ib_uverbs_advise_mr_advice.
type Advice uint32

// The advices of ibv_advise_mr(3).
const (
	AdvicePrefetch        Advice = 0 // bring the pages in, to be read
	AdvicePrefetchWrite   Advice = 1 // and to be written
	AdvicePrefetchNoFault Advice = 2 // map those that are in
)

func (a Advice) String() string {
	names := [...]string{"prefetch", "prefetch to write", "prefetch without faults"}
	if int(a) < len(names) {
		return names[a]
	}
	return "advice " + itoa(uint64(a))
}

// AdviseFlags change how an advice is taken. The values are those of
// IBV_ADVISE_MR_FLAG_*.
type AdviseFlags uint32

// AdviseFlush has the advice done when the call returns. Without it the call
// may return at once, and what fails later is not told.
const AdviseFlush AdviseFlags = 1 << 0

const (
	sgeSize = 16
	// maxAdvised is what fits the size of an attribute, 16 bits.
	maxAdvised = 0xffff / sgeSize
)

// An MRRange is Len bytes from offset Off of an MR.
type MRRange struct {
	MR       *MR
	Off, Len int
}

const opAdvise = "advise on memory"

// AdviseMR tells the device how ranges of on-demand memory of the domain will
// be used: ibv_advise_mr(3). There may be up to 4095 of them.
//
// [ErrNotSupported] where the device takes no advice, or not this one;
// [ErrRange] for a range outside its MR; [ErrInvalid] for memory of another
// domain, or that was not registered with OnDemand.
func (p *PD) AdviseMR(advice Advice, flags AdviseFlags, ranges ...MRRange) error {
	if len(ranges) == 0 || len(ranges) > maxAdvised {
		return invalid(opAdvise, p.String(), "the number of ranges must be 1 to "+sitoa(maxAdvised)+": "+sitoa(len(ranges)))
	}
	list := make([]byte, 0, len(ranges)*sgeSize)
	for i, r := range ranges {
		s, err := p.advised(i, r)
		if err != nil {
			return err
		}
		list = binary.NativeEndian.AppendUint64(list, s.Addr)
		list = binary.NativeEndian.AppendUint32(list, s.Length)
		list = binary.NativeEndian.AppendUint32(list, s.LKey)
	}
	err := p.advise(advice, flags, list)
	if errors.Is(err, ErrInvalid) { // the kernel's word for a region that has been closed meanwhile, too
		for i, r := range ranges {
			if _, closed := p.advised(i, r); closed != nil {
				return closed
			}
		}
	}
	return err
}

// advised checks a range. That the memory is on-demand memory is not left to
// the kernel: rxe of Linux 7.2 takes it for granted, and goes astray.
func (p *PD) advised(i int, r MRRange) (SGE, error) {
	s := r.MR.SGE(r.Off, r.Len)
	switch {
	case s.Length == badLength:
		return s, &Error{Op: opAdvise, Object: p.String(), Kind: ErrRange, Errno: unix.EINVAL,
			Detail: "range " + sitoa(i) + " is outside its memory region, or that is closed"}
	case r.MR.PD().base() != p.base():
		return s, invalid(opAdvise, p.String(), "range "+sitoa(i)+" is of "+r.MR.reg.String()+", which belongs to another PD")
	case !r.MR.view.Load().onDemand:
		return s, invalid(opAdvise, p.String(), "range "+sitoa(i)+" is of "+r.MR.reg.String()+", which was registered without OnDemand")
	}
	return s, nil
}

func (p *PD) advise(advice Advice, flags AdviseFlags, list []byte) error {
	p.ctx.creating.RLock() // the Context's Close waits
	defer p.ctx.creating.RUnlock()
	if p.ctx.closing {
		return &Error{Op: opAdvise, Object: p.ctx.name, Kind: ErrClosed}
	}
	if err := p.hold(); err != nil { // the PD's is refused meanwhile
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
		detail = "the device does not take the advice to " + advice.String() + ": it needs on-demand paging (DeviceAttr.ODP)"
	case unix.EINVAL:
		detail = "the memory lacks LocalWrite, or the flags are unknown"
	case unix.EPERM:
		detail = "memory without LocalWrite is not prefetched to be written"
	case unix.EFAULT:
		detail = "the pages cannot be brought in: the range is not mapped, or not with these rights"
	}
	return p.ctx.wrap(opAdvise, p.String(), err, detail)
}
