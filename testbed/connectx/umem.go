package connectx

import (
	"encoding/binary"

	"github.com/goverbs/goverbs/internal/sim/connectx/engine"
	"github.com/goverbs/goverbs/internal/sim/connectx/prm"
)

// umemCommands are the commands of users' memory (umem).
var umemCommands = []command{
	{0xa08, "CREATE_UMEM", prm.CreateUMemIn, prm.CreateUMemOut, running, (*Device).createUMem},
	{0xa0a, "DESTROY_UMEM", prm.DestroyUMemIn, prm.DestroyUMemOut, running, (*Device).destroyUMem},
}

// The memories of an object that can be in a umem.
const (
	ringMemory   = iota // a ring, or the data of a memory key
	recordMemory        // a doorbell record
	memories
)

// A umem is memory of a user: pages of one size, and the offset in the first.
type umem struct {
	user   uint16
	shift  uint8 // log2 of the size of a page
	offset uint64
	pages  []uint64
	users  int // memories of objects
}

// maxUMemShift bounds the size of a page, as package engine does.
const maxUMemShift = 39

func (d *Device) createUMem(in, out []byte) error {
	c := prm.CreateUMemInUMem.Bytes(in)
	u := &umem{user: userOf(in), shift: uint8(prm.UMemLogPageSize.Get(c)) + 12, offset: prm.UMemPageOffset.Get(c)}
	list := prm.UMemMTT.Within(prm.CreateUMemInUMem)
	n := prm.UMemNumOfMTT.Get(c)
	switch {
	case d.caps.general(prm.HCACapLogMaxUctx) == 0 || d.caps.general(prm.HCACapLogMaxUMem) == 0:
		return refuse(statusBadOpcode, reasonOpcode)
	case n > uint64(len(list.Rest(in))/8):
		return refuse(statusBadInputLength, reasonBuffer)
	case n == 0 || u.shift > maxUMemShift || u.offset >= 1<<u.shift:
		return refuse(statusBadParam, reasonBuffer)
	}
	for i := range int(n) {
		u.pages = append(u.pages, list.At(i).Get(in)&^(pageSize-1)) // the low bits are rights
	}
	if err := d.hca.ReservePages(len(u.pages)); err != nil {
		return err
	}
	id, err := d.umems.add()
	if err != nil {
		d.hca.ReleasePages(len(u.pages))
		return err
	}
	d.memories[id] = u
	prm.CreateUMemOutUMemID.Set(out, uint64(id))
	return nil
}

func (d *Device) destroyUMem(in, out []byte) error {
	id := get32(prm.DestroyUMemInUMemID, in)
	u := d.memories[id]
	switch {
	case u == nil:
		return refuse(statusBadResource, reasonUnknown)
	case u.users > 0:
		return refuse(statusBusy, reasonInUse)
	}
	d.hca.ReleasePages(len(u.pages))
	delete(d.memories, id)
	return d.umems.remove(id)
}

// claim adds n users to umems.
func (d *Device) claim(umems [memories]uint32, n int) {
	for _, id := range umems {
		if u := d.memories[id]; u != nil {
			u.users += n
		}
	}
}

// within returns the umem of a command's memory.
func (d *Device) within(in []byte, memory int, id uint32) (*umem, error) {
	u := d.memories[id]
	if user := userOf(in); u == nil || u.user != user && !privileged(user) {
		return nil, refuse(statusBadResource, reasonUMem)
	}
	d.owners.claimed[memory] = id
	return u, nil
}

// from returns the n bytes at off as a queue's buffer.
func (u *umem) from(off, n uint64) (engine.Buffer, error) {
	size := uint64(len(u.pages))<<u.shift - u.offset
	if off > size || n > size-off {
		return engine.Buffer{}, refuse(statusBadParam, reasonBuffer)
	}
	at := u.offset + off
	return engine.Buffer{PageShift: u.shift, Offset: at & (1<<u.shift - 1), Pages: u.pages[at>>u.shift:]}, nil
}

// A ringPlace has the fields with the place of a ring: in a umem, or in pages that are listed in
// the command.
type ringPlace struct {
	valid, id, offset       prm.Field
	list                    prm.Field
	logPageSize, pageOffset prm.Field
}

// ringAlign is the alignment of a ring in a umem.
const ringAlign = 64

// ring decodes a ring of n bytes.
func (d *Device) ring(in []byte, p ringPlace, n uint64) (engine.Buffer, error) {
	if !p.valid.Is(in) {
		return buffer(in, p.list, p.logPageSize.Get(in), p.pageOffset.Get(in), n)
	}
	u, err := d.within(in, ringMemory, get32(p.id, in))
	if err != nil {
		return engine.Buffer{}, err
	}
	if p.offset.Get(in)%ringAlign != 0 {
		return engine.Buffer{}, refuse(statusBadParam, reasonBuffer)
	}
	b, err := u.from(p.offset.Get(in), n)
	if err == nil {
		b.Pages = b.Pages[:(b.Offset+n+1<<b.PageShift-1)>>b.PageShift]
	}
	return b, err
}

// recordSize is the size of a doorbell record.
const recordSize = 8

// record decodes the address of a doorbell record. If the field valid is set, it is in the umem
// whose number is in the field id.
func (d *Device) record(in []byte, addr, valid, id prm.Field) (uint64, error) {
	if !valid.Is(in) {
		return addr.Get(in), nil
	}
	u, err := d.within(in, recordMemory, get32(id, in))
	if err != nil {
		return 0, err
	}
	b, err := u.from(addr.Get(in), recordSize)
	switch {
	case err != nil:
		return 0, err
	case b.Offset%recordSize != 0:
		return 0, refuse(statusBadParam, reasonBuffer)
	}
	return b.Pages[0] + b.Offset, nil
}

// keyPages returns the list of a memory key of n bytes whose data is in a umem, in pages of
// 1<<shift bytes. The first page contains the beginning of the data.
func (d *Device) keyPages(in []byte, n uint64, shift uint8) ([]byte, error) {
	u, err := d.within(in, ringMemory, get32(prm.CreateMKeyInMKeyUMemID, in))
	if err != nil {
		return nil, err
	}
	if shift < 12 || shift > u.shift {
		return nil, refuse(statusBadParam, reasonSize)
	}
	b, err := u.from(prm.CreateMKeyInMKeyUMemOffset.Get(in), n)
	if err != nil {
		return nil, err
	}
	first := b.Offset &^ (1<<shift - 1)
	pages := (b.Offset + n - first + 1<<shift - 1) >> shift
	if pages > uint64(len(b.Pages))<<(b.PageShift-shift) || pages*8 > uint64(maxKeyList) {
		return nil, refuse(statusLimit, reasonSize)
	}
	var list []byte
	for i := range pages {
		at := first + i<<shift
		list = binary.BigEndian.AppendUint64(list, b.Pages[at>>b.PageShift]+at&(1<<b.PageShift-1))
	}
	if len(list)%octoword != 0 {
		list = append(list, make([]byte, octoword/2)...)
	}
	return list, nil
}

// maxKeyList bounds the list of a memory key in bytes, so that a few pages of a umem cannot become
// a list that fills the memory.
const maxKeyList = 1 << 20
