package rdmacm_test

import (
	"bytes"
	"os"
	"regexp"
	"testing"

	"github.com/goverbs/goverbs/internal/rdmacm"
	"github.com/goverbs/goverbs/internal/sim/ioctltest"
	"github.com/goverbs/goverbs/internal/uapi"
	"golang.org/x/sys/unix"
)

var (
	times = regexp.MustCompile(`<[0-9.]+[nµm]?s>`)
	reply = regexp.MustCompile(`GET_EVENT\([^)]*`) // the reply's address
)

func TestTrace(t *testing.T) {
	var out bytes.Buffer
	defer rdmacm.Trace(true, &out)()
	events := 0
	var ready *os.File
	f, w := fake(t, func(c rdmacm.Call) unix.Errno {
		switch c.Header().Cmd {
		case uapi.RDMA_USER_CM_CMD_BIND:
			return unix.EADDRINUSE
		case uapi.RDMA_USER_CM_CMD_GET_EVENT:
			if events++; events == 1 {
				_, err := ready.Write([]byte{1})
				must(t, err)
				return unix.EAGAIN // not traced
			}
		}
		return 0
	})
	ready = w
	must(t, f.Listen(7, 9))
	must(t, f.Disconnect(8))
	if err := f.Bind(3, []byte{2, 0, 0x1d, 0x2f, 192, 0, 2, 1}); err == nil {
		t.Error("bind was not refused")
	}
	must(t, f.Reject(4, 28, numbered(100)))
	must(t, f.Accept(&uapi.RdmaUcmAccept{Id: 5}))
	must(t, f.NextEvent(new(uapi.RdmaUcmEventResp)))
	got := times.ReplaceAllString(out.String(), "<time>")
	ioctltest.Golden(t, "trace", reply.ReplaceAllString(got, "GET_EVENT(..."))
}

func TestNoTrace(t *testing.T) {
	var out bytes.Buffer
	defer rdmacm.Trace(false, &out)()
	f, _ := fake(t, func(rdmacm.Call) unix.Errno { return 0 })
	must(t, f.Listen(7, 9))
	if out.Len() != 0 {
		t.Errorf("printed %q", out.String())
	}
}
