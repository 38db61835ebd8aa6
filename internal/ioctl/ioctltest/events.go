package ioctltest

import (
	"encoding/binary"
	"fmt"

	"golang.org/x/sys/unix"
)

// socketpair stands for an event descriptor: one record per read, pollable,
// and the end of one side shows on the other.
func (k *Kernel) eventPair() (theirs int, err error) {
	p, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	k.channels[p[0]] = p[1]
	return p[0], nil
}

// hungUp tells whether the other end is closed.
func hungUp(fd int) bool {
	p := []unix.PollFd{{Fd: int32(fd)}}
	n, err := unix.Poll(p, 0)
	return err == nil && n == 1 && p[0].Revents&unix.POLLHUP != 0
}

// forgetClosed drops the descriptors that the library has closed, whose
// numbers come again.
func (k *Kernel) forgetClosed() {
	for fd, mine := range k.channels {
		if hungUp(mine) {
			_ = unix.Close(mine) // a socket of this process: it is open
			delete(k.channels, fd)
		}
	}
}

// Complete sends the completion event of a CQ to its channel.
func (k *Kernel) Complete(cq uint32) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	o := k.objects[cq]
	if o == nil || o.kind != "CQ" || o.channel < 0 {
		return fmt.Errorf("no CQ %d with a channel", cq)
	}
	return k.send(o.channel, binary.LittleEndian.AppendUint64(nil, o.user))
}

// Async sends an asynchronous event. For events of queues, element is the
// object's user handle: see UserHandle.
func (k *Kernel) Async(element uint64, typ uint32) error {
	b := binary.LittleEndian.AppendUint64(nil, element)
	b = binary.LittleEndian.AppendUint32(b, typ)
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.send(k.async, binary.LittleEndian.AppendUint32(b, 0))
}

// UserHandle is what the library called an object.
func (k *Kernel) UserHandle(handle uint32) uint64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.objects[handle].user
}

// Unplug removes the device: every command is EIO, and the event descriptors
// end.
func (k *Kernel) Unplug() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.Refuse = map[string]unix.Errno{}
	for name := range handlers {
		k.Refuse[name] = unix.EIO
	}
	for _, mine := range k.channels {
		_ = unix.Shutdown(mine, unix.SHUT_RDWR) // the other end reads 0 bytes
	}
	clear(k.objects)
}

func (k *Kernel) send(fd int, record []byte) error {
	mine, ok := k.channels[fd]
	if !ok {
		return fmt.Errorf("no event descriptor %d", fd)
	}
	return unix.Send(mine, record, unix.MSG_NOSIGNAL)
}
