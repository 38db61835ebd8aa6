package vfiouser_test

import (
	"context"
	"errors"
	"io"
	"sync"
	"testing"
	"time"

	"github.com/goverbs/goverbs/testbed/connectx/vfiouser"
)

// FuzzStream checks that for any input the server ends when the stream does,
// without a panic, and releases all resources.
//
// The input consists of pieces: a byte that selects descriptors (1 a file, 2 an
// eventfd, 4 many), a byte for the length, and the bytes.
func FuzzStream(f *testing.F) {
	version := request(1, vfiouser.Version, 0, []byte{0, 0, 1, 0})
	piece := func(fds byte, b []byte) []byte { return append([]byte{fds, byte(len(b))}, b...) }
	f.Add(piece(0, version))
	for _, x := range [][]byte{
		piece(1, request(1, vfiouser.DMAMap, 0, dmaMap(rw, 0, 4096, 4096))),
		piece(2, request(1, vfiouser.SetIRQs, 0, setIRQs(eventFD|triggered, vfiouser.MSIX, 0, 1))),
		piece(0, request(1, vfiouser.SetIRQs, 0, setIRQs(none|triggered, vfiouser.MSIX, 0, 1))),
		piece(0, request(1, vfiouser.RegionRead, 0, access(0, 0, 16))),
		piece(0, request(1, vfiouser.RegionWrite, 0x10, access(toyAddress, 0, 8, 0, 16, 0, 0, 0, 0, 0, 0))),
		piece(0, request(1, vfiouser.RegionWrite, 0, access(toyRing, 0, 4, 0, 0, 0, 0))),
		piece(0, request(1, vfiouser.RegionWrites, 0,
			append(le.AppendUint64(nil, 1), access(16, 0, 4, make([]byte, 8)...)...))),
		piece(0, request(1, vfiouser.DMAUnmap, 0, dmaUnmap(2, 0, 0))),
		piece(0, request(1, vfiouser.RegionInfo, 0, make([]byte, 32))),
		piece(4, request(1, vfiouser.DeviceReset, 0, nil)),
	} {
		f.Add(append(piece(0, version), append(x, x...)...))
	}
	file, _ := memfd(f, 2*4096)
	event := eventfd(f)
	f.Fuzz(func(t *testing.T, input []byte) {
		ours, theirs := pair(t)
		d := newToy(t, 0x1017)
		var mu sync.Mutex
		s := &vfiouser.Server{
			Device: noPanic{d},
			Run:    func(f func()) { mu.Lock(); defer mu.Unlock(); f() },
			Report: func(err error) {
				if errors.Is(err, vfiouser.ErrPanic) {
					t.Errorf("report: %v", err)
				}
			},
		}
		ended, drained := make(chan error, 1), make(chan error, 1)
		go func() { ended <- s.ServeConn(context.Background(), theirs) }()
		go func() { _, err := io.Copy(io.Discard, ours); drained <- err }()
		c := &client{t: t, conn: ours}
		for len(input) > 2 {
			kinds, n := input[0], min(int(input[1]), len(input)-2)
			var fds []int
			if kinds&1 != 0 {
				fds = append(fds, file)
			}
			if kinds&2 != 0 {
				fds = append(fds, event)
			}
			for kinds&4 != 0 && len(fds) < 12 {
				fds = append(fds, event)
			}
			b := input[2 : 2+n]
			input = input[2+n:]
			if n > 0 && !c.try(b, fds...) {
				break // the server has closed the connection
			}
		}
		if err := ours.CloseWrite(); err != nil {
			t.Error(err)
		}
		select {
		case err := <-ended:
			var e *vfiouser.Error
			if err != nil && !errors.As(err, &e) {
				t.Errorf("ended with %v", err)
			}
		case <-time.After(limit):
			t.Error("the server does not end")
		}
		if d.host != nil {
			t.Error("the device was not disconnected")
		}
		<-drained // an error if the server has closed first
		if err := ours.Close(); err != nil {
			t.Error(err)
		}
	})
}

// noPanic is a toy without the panicking register.
type noPanic struct{ *toy }

func (d noPanic) Read(region int, offset uint64, p []byte) error {
	if region == 0 && offset == toyPanic {
		return nil
	}
	return d.toy.Read(region, offset, p)
}

func (d noPanic) Write(region int, offset uint64, p []byte) error {
	if region == 0 && offset == toyPanic {
		return nil
	}
	return d.toy.Write(region, offset, p)
}
