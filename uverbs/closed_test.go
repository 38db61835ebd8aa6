package uverbs

import (
	"context"
	"errors"
	"io"
	"net"
	"reflect"
	"slices"
	"strings"
	"testing"
)

var (
	// onDataPath are the methods that return ErrClosed itself, because posts and polls do not allocate.
	onDataPath = []string{"CQ.Poll", "QP.PostSend", "QP.PostRecv", "SRQ.PostRecv", "MW.Bind"}
	// needNotBeOpen are the methods that use only what the object knows, or the files of the device.
	needNotBeOpen = []string{"Context.AHAttrFromKey", "Context.AHAttrFromWC", "Context.PKeyIndex", "Context.PKeys"}
)

// TestClosedObjects calls every method that returns an error on closed objects of each kind. Each must return an error
// that matches ErrClosed, with arguments that it accepts, and, off the data path, names the operation and the object.
func TestClosedObjects(t *testing.T) {
	r := newRig(t)
	r.k.Set(func() { r.k.Extended.OdpCaps.GeneralCaps = uint64(ODPSupport) })
	found := map[string]bool{} // by method, whether it has returned ErrClosed
	objects, given := r.closable(t)
	for _, o := range objects {
		check(t, o.Close())
		callClosed(t, o, given, found)
	}
	objects, given = r.closable(t)
	check(t, r.c.Close())
	for _, o := range append(objects, r.c) {
		callClosed(t, o, given, found)
	}
	for name, closed := range found {
		if closed == slices.Contains(needNotBeOpen, name) {
			t.Errorf("%s returns ErrClosed: %v", name, closed)
		}
	}
}

// closable returns objects of each kind, in an order in which they can be closed, and arguments of methods.
func (r *rig) closable(t *testing.T) (objects []io.Closer, given map[reflect.Type]any) {
	b := r.bundle(t, false)
	ud := r.meeting(t, b, false)
	remote := good(b.qp.Endpoint())(t)
	odp := good(b.pd.RegMR(make([]byte, 4096), LocalWrite|OnDemand))(t)
	dm := good(r.c.AllocDM(DMConfig{Size: 64}))(t)
	xrcd := good(r.c.OpenXRCD(nil, 0))(t)
	objects = []io.Closer{good(b.pd.AllocMW(MWType1))(t), b.qp, ud.qp, ud.ah, ud.srq, xrcd, b.cq, b.mr, odp, dm, b.pd,
		good(r.c.AllocTD())(t), good(r.c.CreateCompChannel())(t)}
	here, _ := net.Pipe()
	given = map[reflect.Type]any{}
	for _, v := range []any{1, make([]byte, 4), make([]WC, 1), &WC{}, remote, b.qp, dm, MWType2, ReregTranslation,
		DMConfig{Size: 4}, CQConfig{Entries: 1}, SRQConfig{MaxWR: 1}, MRRange{MR: odp, Len: 1},
		QPConfig{Type: RC, SendCQ: b.cq, MaxSendWR: 1}} {
		given[reflect.TypeOf(v)] = v
	}
	given[reflect.TypeFor[context.Context]()] = t.Context()
	given[reflect.TypeFor[net.Conn]()] = here
	return objects, given
}

// callClosed calls the methods of a closed object.
func callClosed(t *testing.T, object io.Closer, given map[reflect.Type]any, found map[string]bool) {
	t.Helper()
	v := reflect.ValueOf(object)
	for i := range v.NumMethod() {
		m, typ := v.Method(i), v.Method(i).Type()
		name := v.Elem().Type().Name() + "." + v.Type().Method(i).Name
		if n := typ.NumOut(); n == 0 || typ.Out(n-1) != reflect.TypeFor[error]() || strings.HasSuffix(name, ".Close") {
			continue
		}
		var args []reflect.Value
		for i := range typ.NumIn() {
			in, arg := typ.In(i), reflect.Zero(typ.In(i))
			if typ.IsVariadic() && i == typ.NumIn()-1 {
				in, arg = in.Elem(), reflect.Zero(in.Elem())
			}
			if v, ok := given[in]; ok && name != "XRCD.CreateQP" { // which accepts the zero QPConfig
				arg = reflect.ValueOf(v)
			}
			args = append(args, arg)
		}
		results := m.Call(args)
		err, _ := results[len(results)-1].Interface().(error)
		found[name] = found[name] || errors.Is(err, ErrClosed)
		var named *Error
		switch {
		case !errors.Is(err, ErrClosed) || slices.Contains(onDataPath, name):
		case !errors.As(err, &named) || named.Op == "" || !strings.HasPrefix(named.Object, "fake0"):
			t.Errorf("%s: the error does not name the operation and the object: %v", name, err)
		}
	}
}
