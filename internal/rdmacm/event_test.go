package rdmacm_test

import (
	"encoding/binary"
	"testing"

	"github.com/goverbs/goverbs/internal/rdmacm"
	"github.com/goverbs/goverbs/internal/uapi"
	"golang.org/x/sys/unix"
)

// NextEvent accepts any bytes as an event. Fields that an older kernel leaves out are
// zero.
func FuzzEvent(f *testing.F) {
	f.Add([]byte{})
	f.Add(make([]byte, 324))
	long := make([]byte, 400)
	for i := range long {
		long[i] = byte(i)
	}
	f.Add(long)
	var now []byte
	file, _ := fake(f, func(c rdmacm.Call) unix.Errno {
		copy(c.Memory(binary.NativeEndian.Uint64(c.Frame()[8:]), int(c.Header().Out)), now)
		return 0
	})
	f.Fuzz(func(t *testing.T, record []byte) {
		now = record
		e := uapi.RdmaUcmEventResp{Uid: 1, Ece: uapi.RdmaUcmEce{VendorId: 1}}
		must(t, file.NextEvent(&e))
		full := make([]byte, 336)
		copy(full, record)
		u32 := func(off int) uint32 { return binary.NativeEndian.Uint32(full[off:]) }
		conn, ud := rdmacm.ConnParam(&e), rdmacm.UDParam(&e)
		if e.Uid != binary.NativeEndian.Uint64(full) || e.Id != u32(8) || e.Event != u32(12) || e.Status != u32(16) ||
			e.Ece.AttrMod != u32(332) {
			t.Errorf("%+v of %x", e, record)
		}
		if conn.QpNum != u32(20) || conn.PrivateDataLen != full[20+264] || conn.Valid != full[20+271] ||
			int(conn.PrivateDataLen) > len(conn.PrivateData) {
			t.Errorf("%+v of %x", conn, record)
		}
		if ud.Qkey != u32(24) || ud.AhAttr.Grh.FlowLabel != u32(20+24) || ud.PrivateDataLen != full[20+296] {
			t.Errorf("%+v of %x", ud, record)
		}
		if rdmacm.Arg(&e) != binary.NativeEndian.Uint64(full[20:]) {
			t.Errorf("argument %#x of %x", rdmacm.Arg(&e), record)
		}
	})
}
