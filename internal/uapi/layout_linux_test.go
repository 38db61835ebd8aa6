package uapi

import (
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// golden is testdata/layout.txt.
type golden struct {
	consts  []goldenConst
	structs []goldenStruct
}

type goldenConst struct {
	header, name string
	value        uint64
}

type goldenStruct struct {
	header, name, cname, base string
	size                      int
	fields                    []goldenField
}

type goldenField struct {
	name, path string
	off, size  int
}

// expr returns the C expression, for offsetof, of a field of the struct.
func (s goldenStruct) expr(f goldenField) string {
	if s.base == "." {
		return f.path
	}
	return s.base + "." + f.path
}

// readGolden parses the table.
func readGolden(t *testing.T) golden {
	t.Helper()
	text, err := os.ReadFile("testdata/layout.txt")
	if err != nil {
		t.Fatal(err)
	}
	var g golden
	header := ""
	for i, line := range strings.Split(string(text), "\n") {
		if line == "" || line[0] == '#' {
			continue
		}
		var err error
		kind, rest, _ := strings.Cut(line, " ")
		switch kind {
		case "header":
			header = rest
		case "const":
			c := goldenConst{header: header}
			_, err = fmt.Sscan(rest, &c.name, &c.value)
			g.consts = append(g.consts, c)
		case "struct":
			s := goldenStruct{header: header}
			_, err = fmt.Sscan(rest, &s.name, &s.cname, &s.base, &s.size)
			g.structs = append(g.structs, s)
		case "field":
			var f goldenField
			_, err = fmt.Sscan(rest, &f.name, &f.path, &f.off, &f.size)
			s := &g.structs[len(g.structs)-1]
			s.fields = append(s.fields, f)
		default:
			err = fmt.Errorf("unknown kind %q", kind)
		}
		if err != nil {
			t.Fatalf("layout.txt line %d: %v", i+1, err)
		}
	}
	return g
}

func TestConstantsMatchTable(t *testing.T) {
	want := map[string]uint64{}
	for _, c := range readGolden(t).consts {
		want[c.name] = c.value
	}
	if d := cmp.Diff(want, goConsts); d != "" {
		t.Errorf("constants differ from testdata/layout.txt (-table +go):\n%s", d)
	}
}

func TestStructsMatchTable(t *testing.T) {
	seen := map[string]bool{}
	for _, s := range readGolden(t).structs {
		seen[s.name] = true
		v, ok := goStructs[s.name]
		if !ok {
			t.Errorf("%s is in the table but not in goStructs", s.name)
			continue
		}
		typ := reflect.TypeOf(v)
		if int(typ.Size()) != s.size {
			t.Errorf("%s: size %d, C has %d", s.name, typ.Size(), s.size)
		}
		var got []goldenField
		for i := 1; i < typ.NumField(); i++ { // field 0 is HostLayout
			f := typ.Field(i)
			got = append(got, goldenField{name: f.Name, off: int(f.Offset), size: int(f.Type.Size())})
		}
		want := append([]goldenField(nil), s.fields...)
		for i := range want {
			want[i].path = ""
		}
		if d := cmp.Diff(want, got, cmp.AllowUnexported(goldenField{})); d != "" {
			t.Errorf("%s: fields differ (-C +Go):\n%s", s.name, d)
		}
	}
	for name := range goStructs {
		if !seen[name] {
			t.Errorf("%s has no line in the table", name)
		}
	}
}

// TestStructsAreFixed checks that each struct consists of fixed-size fields and
// has explicit padding.
func TestStructsAreFixed(t *testing.T) {
	for name, v := range goStructs {
		checkFixed(t, name, reflect.TypeOf(v))
	}
}

func checkFixed(t *testing.T, where string, typ reflect.Type) {
	t.Helper()
	switch typ.Kind() {
	case reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Int32, reflect.Int64:
	case reflect.Array:
		checkFixed(t, where+"[]", typ.Elem())
	case reflect.Struct:
		if typ.NumField() < 2 || typ.Field(0).Type.String() != "structs.HostLayout" {
			t.Errorf("%s: %v does not start with structs.HostLayout", where, typ)
			return
		}
		end := uintptr(0)
		for i := 1; i < typ.NumField(); i++ {
			f := typ.Field(i)
			if f.Offset != end {
				t.Errorf("%s.%s: %d bytes of implicit padding before it", where, f.Name, f.Offset-end)
			}
			end = f.Offset + f.Type.Size()
			checkFixed(t, where+"."+f.Name, f.Type)
		}
		if end != typ.Size() {
			t.Errorf("%s: %d bytes of implicit padding at the end", where, typ.Size()-end)
		}
	default:
		t.Errorf("%s: kind %v must not be in an ABI struct", where, typ.Kind())
	}
}

// TestKnownLayout checks numbers that were observed on the wire and on running
// kernels, and so do not depend on the generator.
func TestKnownLayout(t *testing.T) {
	for _, c := range []struct {
		name string
		got  uintptr
		want uintptr
	}{
		{"RDMA_VERBS_IOCTL", RDMA_VERBS_IOCTL, 0xc0181b01},
		{"UVERBS_OBJECT_ASYNC_EVENT", UVERBS_OBJECT_ASYNC_EVENT, 16},
		{"RDMA_DRIVER_RXE", RDMA_DRIVER_RXE, 14},
		{"RDMA_NLDEV_CMD_GET_CHARDEV", RDMA_NLDEV_CMD_GET_CHARDEV, 15},
		{"RDMA_NLDEV_ATTR_UVERBS_DRIVER_ID", RDMA_NLDEV_ATTR_UVERBS_DRIVER_ID, 73},
		{"IB_USER_VERBS_CMD_OPEN_QP", IB_USER_VERBS_CMD_OPEN_QP, 40},
		{"IB_USER_VERBS_EX_CMD_MODIFY_CQ", IB_USER_VERBS_EX_CMD_MODIFY_CQ, 57},
		{"ioctl header", size[IbUverbsIoctlHdr](), 24},
		{"ioctl attribute", size[IbUverbsAttr](), 16},
		{"modify_qp", size[IbUverbsModifyQp](), 112},
		{"query_qp_resp", size[IbUverbsQueryQpResp](), 128},
		{"create_ah", size[IbUverbsCreateAh](), 56},
		{"reg_mr", size[IbUverbsRegMr](), 40},
		{"wc", size[IbUverbsWc](), 48},
		{"gid_entry", size[IbUverbsGidEntry](), 32},
		{"query_port_resp_ex", size[IbUverbsQueryPortRespEx](), 48},
		{"send_wr", size[IbUverbsSendWr](), 56},
		{"rxe send wqe", size[RxeSendWqe](), 208},
		{"rxe send wr", size[RxeSendWr](), 144},
		{"rxe recv wqe", size[RxeRecvWqe](), 40},
		{"rxe av", size[RxeAv](), 88},
		{"rxe queue header", size[RxeQueueBuf](), 384},
		{"ucm header", size[RdmaUcmCmdHdr](), 8},
		{"ucm bind", size[RdmaUcmBind](), 136},
		{"ucm resolve_addr", size[RdmaUcmResolveAddr](), 272},
		{"ucm conn_param", size[RdmaUcmConnParam](), 272},
		{"ucm connect", size[RdmaUcmConnect](), 288},
		{"ucm accept", size[RdmaUcmAccept](), 296},
		{"ucm reject", size[RdmaUcmReject](), 264},
		{"ucm qp attr", size[IbUverbsQpAttr](), 144},
		{"ucm event", size[RdmaUcmEventResp](), 336},
		{"ucm join", size[RdmaUcmJoinMcast](), 152},
	} {
		if c.got != c.want {
			t.Errorf("%s: %#x, want %#x", c.name, c.got, c.want)
		}
	}
}

func size[T any]() uintptr { return reflect.TypeFor[T]().Size() }

// TestVariantsFit checks that each union member fits into the byte array that
// replaces the union in the struct.
func TestVariantsFit(t *testing.T) {
	for _, c := range []struct {
		union    any
		variants []any
	}{
		{RxeSendWr{}.Wr, []any{RxeRdmaWr{}, RxeAtomicWr{}, RxeUdWr{}, RxeMwWr{}, RxeFlushWr{}}},
		{IbUverbsSendWr{}.Wr, []any{IbUverbsRdmaWr{}, IbUverbsAtomicWr{}, IbUverbsUdWr{}}},
		{RxeAv{}.SgidAddr, []any{SockaddrIn{}, SockaddrIn6{}}},
		{RxeAv{}.DgidAddr, []any{SockaddrIn{}, SockaddrIn6{}}},
		{RdmaUcmEventResp{}.Param, []any{RdmaUcmConnParam{}, RdmaUcmUdParam{}}},
		{RdmaUcmWriteCmEvent{}.Param, []any{RdmaUcmConnParam{}, RdmaUcmUdParam{}}},
	} {
		for _, v := range c.variants {
			if got, room := reflect.TypeOf(v).Size(), reflect.TypeOf(c.union).Size(); got > room {
				t.Errorf("%T has %d bytes, its union %d", v, got, room)
			}
		}
	}
}
