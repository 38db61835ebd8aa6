package ioctltest

import (
	"encoding/binary"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// eventPair returns the library's end of a socket pair, which replaces an event descriptor: each
// read returns one record, it can be polled, and each end notices when the other is closed.
func (k *Kernel) eventPair() (theirs int, err error) {
	p, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	if k.Foreign {
		return k.handOut(p[0], p[1]), nil
	}
	if mine, ok := k.channels[p[0]]; ok { // the library closed its end after forgetClosed
		_ = unix.Close(mine)
	}
	delete(k.waiting, p[1]) // of an earlier socket with the number
	k.channels[p[0]], k.places[p[0]] = p[1], k.place()
	return p[0], nil
}

// AllocEvents returns a descriptor for events of the driver. There are none but the removal of the device.
func (k *Kernel) AllocEvents() (fd int, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.unplugged {
		return -1, unix.EIO
	}
	k.forgetClosed()
	return k.eventPair()
}

// hungUp reports whether the other end is closed.
func hungUp(fd int) bool {
	p := []unix.PollFd{{Fd: int32(fd)}}
	n, err := unix.Poll(p, 0)
	return err == nil && n == 1 && p[0].Revents&unix.POLLHUP != 0
}

// forgetClosed removes the descriptors that the library has closed, because their numbers are
// reused. It looks at all when there are twice as many as it left the last time.
func (k *Kernel) forgetClosed() {
	if len(k.channels) < k.forgetAt {
		return
	}
	defer func() { k.forgetAt = 2*len(k.channels) + 1 }()
	for fd, mine := range k.channels {
		if hungUp(mine) {
			_ = unix.Close(mine) // a socket of this process that is open
			delete(k.waiting, mine)
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

// Break makes the channel of a CQ unreadable by sending a record of another size.
func (k *Kernel) Break(cq uint32) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.send(k.objects[cq].channel, []byte{1})
}

// Async sends an asynchronous event. For events of queues, element is the
// object's user handle: see UserHandle. Without an event file, the event is lost.
func (k *Kernel) Async(element uint64, typ uint32) error {
	b := binary.LittleEndian.AppendUint64(nil, element)
	b = binary.LittleEndian.AppendUint32(b, typ)
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.async < 0 {
		return nil
	}
	return k.send(k.async, binary.LittleEndian.AppendUint32(b, 0))
}

// UserHandle returns the user handle that the library gave an object.
func (k *Kernel) UserHandle(handle uint32) uint64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.objects[handle].user
}

// Unplug removes the device. The event descriptors report end of file, and every command fails
// with EIO except commands that destroy an object, which succeed, as in the kernel.
func (k *Kernel) Unplug() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.unplugged = true
	for _, mine := range k.channels {
		_ = unix.Shutdown(mine, unix.SHUT_RDWR) // the other end reads 0 bytes
	}
	clear(k.objects)
}

// A backlog has the records that did not fit into a socket when they were reported. A kernel's queue
// of events is not limited.
type backlog struct{ records [][]byte }

// sendBacklog sends the records of b, of which there is at least one. own is another descriptor of
// the socket mine.
func (k *Kernel) sendBacklog(b *backlog, mine, own int) {
	defer unix.Close(own)
	for {
		k.mu.Lock()
		record := b.records[0]
		k.mu.Unlock()
		err := unix.Send(own, record, unix.MSG_NOSIGNAL)
		k.mu.Lock()
		if b.records = b.records[1:]; len(b.records) == 0 || err != nil { // the library has closed its end
			if k.waiting[mine] == b { // not that of a later socket with the number
				delete(k.waiting, mine)
			}
			k.mu.Unlock()
			return
		}
		k.mu.Unlock()
	}
}

func (k *Kernel) send(fd int, record []byte) error {
	mine, ok := k.channels[fd]
	if !ok {
		return fmt.Errorf("no event descriptor %d", fd)
	}
	if b := k.waiting[mine]; b != nil {
		b.records = append(b.records, record)
		return nil
	}
	err := unix.Send(mine, record, unix.MSG_NOSIGNAL|unix.MSG_DONTWAIT)
	switch {
	case errors.Is(err, unix.EPIPE), errors.Is(err, unix.ECONNRESET): // the library has closed its end
		return nil
	case !errors.Is(err, unix.EAGAIN):
		return err
	}
	own, err := unix.FcntlInt(uintptr(mine), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return err
	}
	if k.waiting == nil {
		k.waiting = map[int]*backlog{}
	}
	k.waiting[mine] = &backlog{[][]byte{record}}
	go k.sendBacklog(k.waiting[mine], mine, own)
	return nil
}
