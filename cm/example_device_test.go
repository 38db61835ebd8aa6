//go:build device

package cm_test

import (
	"cmp"
	"errors"
	"io"
	"os"
	"testing"
)

// An example is a function that prints want.
type example struct {
	name string
	run  func()
	want string
}

// TestDeviceFiveFunctions runs the examples of docs/five-functions.md.
func TestDeviceFiveFunctions(t *testing.T) {
	runExamples(t, []example{
		{"PostRecv", ExampleConn_PostRecv,
			"receive 0: one\nreceive 1: two\nreceive 2: three\nreceive 3: four\nreceive 0: five\nreceive 1: six\n"},
		{"PostSend", ExampleConn_PostSend,
			"send 7 is complete\nreceived \"out of registered memory\"\nreceived \"inline\"\n"},
		{"PostRead", ExampleConn_PostRead, "READ of 22 bytes: what the server offers\n"},
		{"PostWriteImm", ExampleConn_PostWriteImm, "19 bytes at 16: written by the peer\n"},
		{"RecvComp", ExampleConn_RecvComp, "nothing yet: true\nreceive 0: late\nreceive 1 is flushed: true\n"},
		{"ibv_post_recv", Example_ibvPostRecv,
			"2 are posted, the next is bad: true\nreceive 10: to the list\nreceive 11: to the list\n"},
	})
}

// TestDeviceExamples runs the other examples that need no second program.
func TestDeviceExamples(t *testing.T) {
	runExamples(t, []example{
		{"PostWrite", ExampleConn_PostWrite, "written by the peer\n"},
		{"SetPrivateData", ExampleConn_SetPrivateData, "the server offers memory: true\n"},
		{"Disconnected", ExampleConn_Disconnected, "the peer has ended the connection: true\n"},
		{"JoinMulticast", ExampleJoinMulticast, "to all members\n"},
		{"a lossless network", ExampleOptions_losslessNetwork, "traffic class 106\ntraffic class 106\n"},
	})
}

func runExamples(t *testing.T, all []example) {
	exampleIP = cmp.Or(os.Getenv("GOVERBS_ADDRESS"), "10.9.0.1") // the default is the address of the guests' device
	for _, e := range all {
		t.Run(e.name, func(t *testing.T) {
			if got := printed(t, e.run); got != e.want {
				t.Errorf("it prints\n%s\nwant\n%s", got, e.want)
			}
		})
	}
}

// printed returns what f prints on standard output.
func printed(t *testing.T, f func()) string {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	all := make(chan string, 1)
	go func() {
		b, _ := io.ReadAll(r) // ends when the writer is closed
		all <- string(b)
	}()
	stdout := os.Stdout
	os.Stdout = w
	f()
	os.Stdout = stdout
	err = w.Close()
	got := <-all
	if err := errors.Join(err, r.Close()); err != nil {
		t.Fatal(err)
	}
	return got
}
