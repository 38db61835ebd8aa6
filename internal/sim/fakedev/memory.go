package fakedev

import (
	"encoding/binary"

	"github.com/goverbs/goverbs/internal/sim/connectx/transport"
	"github.com/goverbs/goverbs/internal/uapi"
)

// An SGE is memory of a request: N bytes at an address of a region.
type SGE struct {
	Addr uint64
	Key  uint32
	N    uint32
}

// Local returns the region of an SGE, or nil if the PD or the key does not allow the access.
func (d *Device) Local(pd uint32, x SGE, access uint32) *MR {
	m := d.MRs[x.Key]
	if m == nil || m.PD != pd || !m.Within(x.Addr, uint64(x.N), access) {
		return nil
	}
	return m
}

// Gather fills p with the memory of SGEs, from an offset of it on.
func (d *Device) Gather(pd uint32, sges []SGE, off uint32, p []byte) transport.Syndrome {
	return d.move(pd, sges, off, p, 0)
}

// Scatter writes p to the memory of SGEs, from an offset of it on. It writes what fits, if p is longer.
func (d *Device) Scatter(pd uint32, sges []SGE, off uint32, p []byte) transport.Syndrome {
	return d.move(pd, sges, off, p, uapi.IB_UVERBS_ACCESS_LOCAL_WRITE)
}

// move copies p to the memory of SGEs, or from there if access is 0.
func (d *Device) move(pd uint32, sges []SGE, off uint32, p []byte, access uint32) transport.Syndrome {
	for _, x := range sges {
		if off >= x.N {
			off -= x.N
			continue
		}
		n := min(len(p), int(x.N-off))
		if n == 0 {
			break
		}
		m := d.Local(pd, x, access)
		if m == nil {
			return transport.LocalProtection
		}
		at := m.At(x.Addr + uint64(off))
		if access == 0 && !m.Read(at, p[:n]) || access != 0 && !m.Write(at, p[:n]) {
			return transport.LocalProtection
		}
		p, off = p[n:], 0
	}
	if len(p) > 0 {
		return transport.LocalLength
	}
	return transport.OK
}

const atomicSize = 8

// ScatterResponse writes the data of a READ, or the old value of an atomic, which has the host's byte order in memory.
func (d *Device) ScatterResponse(pd uint32, sges []SGE, op transport.Op, off uint32, p []byte) transport.Syndrome {
	if op != transport.Read {
		p = binary.LittleEndian.AppendUint64(nil, binary.BigEndian.Uint64(p))
	}
	return d.Scatter(pd, sges, off, p)
}

// rights has the right that an access needs.
var rights = map[transport.Access]uint32{transport.RemoteWrite: uapi.IB_UVERBS_ACCESS_REMOTE_WRITE,
	transport.RemoteRead: uapi.IB_UVERBS_ACCESS_REMOTE_READ, transport.RemoteReadAgain: uapi.IB_UVERBS_ACCESS_REMOTE_READ,
	transport.RemoteAtomic: uapi.IB_UVERBS_ACCESS_REMOTE_ATOMIC}

// A region is memory that the peer accesses.
type region struct {
	*MR
	va uint64
}

func (r region) Write(off uint32, p []byte) transport.Syndrome {
	return fault(r.MR.Write(r.At(r.va+uint64(off)), p))
}

func (r region) Read(off uint32, p []byte) transport.Syndrome {
	return fault(r.MR.Read(r.At(r.va+uint64(off)), p))
}

// fault returns OK, or the error of memory that a program has unmapped.
func fault(ok bool) transport.Syndrome {
	if ok {
		return transport.OK
	}
	return transport.RemoteAccess
}

// Atomic carries out an atomic operation.
func (r region) Atomic(op transport.Op, o [4]uint64) (old uint64, s transport.Syndrome) {
	b := make([]byte, atomicSize)
	if s = r.Read(0, b); s != transport.OK {
		return 0, s
	}
	old = binary.LittleEndian.Uint64(b)
	v := old
	switch {
	case op == transport.FetchAdd:
		v += o[0]
	case old == o[1]:
		v = o[0]
	}
	binary.LittleEndian.PutUint64(b, v)
	return old, r.Write(0, b)
}
