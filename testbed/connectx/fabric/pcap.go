package fabric

import (
	"encoding/binary"
	"fmt"
	"io"
	"slices"
	"time"
)

// A Capture writes frames to a pcap file, with times in nanoseconds, as tcpdump
// and tshark read it.
type Capture struct {
	w      io.Writer
	sw     *Switch
	ports  []string
	buf    []byte
	frames uint64
	err    error
}

// Parts of the format: of a file's header.
const (
	pcapNanosecond = 0xA1B23C4D
	pcapEthernet   = 1
	pcapHeader     = 24
)

// Capture begins a capture. Of the ports that are named it has the frames as
// their devices see them: what they send before the faults, what they are given
// after. Without names it has each frame once, as it comes to the switch. Each
// frame is one Write.
func (s *Switch) Capture(w io.Writer, ports ...string) (*Capture, error) {
	for _, name := range ports {
		if _, err := s.find(name); err != nil {
			return nil, err
		}
	}
	h := make([]byte, 0, pcapHeader)
	h = binary.LittleEndian.AppendUint32(h, pcapNanosecond)
	h = binary.LittleEndian.AppendUint16(h, 2) // version 2.4
	h = binary.LittleEndian.AppendUint16(h, 4)
	h = binary.LittleEndian.AppendUint64(h, 0) // times are UTC
	h = binary.LittleEndian.AppendUint32(h, MaxFrame)
	h = binary.LittleEndian.AppendUint32(h, pcapEthernet)
	if _, err := w.Write(h); err != nil {
		return nil, fmt.Errorf("fabric: capture: %w", err)
	}
	c := &Capture{w: w, sw: s, ports: ports}
	s.captures = append(s.captures, c)
	return c, nil
}

// Stop ends the capture. The error is the first of the writer, after which
// nothing was written.
func (c *Capture) Stop() error {
	c.sw.captures = slices.DeleteFunc(c.sw.captures, func(x *Capture) bool { return x == c })
	return c.err
}

// Frames is how many frames were written.
func (c *Capture) Frames() uint64 { return c.frames }

// capture shows a frame at a port to those who watch it.
func (s *Switch) capture(p *port, f frame) {
	for _, c := range s.captures {
		if slices.Contains(c.ports, p.name) {
			c.write(f)
		}
	}
}

// captureAll shows a frame that comes in to those who watch the switch.
func (s *Switch) captureAll(f frame) {
	for _, c := range s.captures {
		if len(c.ports) == 0 {
			c.write(f)
		}
	}
}

func (c *Capture) write(f frame) {
	if c.err != nil {
		return
	}
	now := time.Now()
	b := binary.LittleEndian.AppendUint32(c.buf[:0], uint32(now.Unix()))
	b = binary.LittleEndian.AppendUint32(b, uint32(now.Nanosecond()))
	b = binary.LittleEndian.AppendUint32(b, uint32(len(f)))
	b = binary.LittleEndian.AppendUint32(b, uint32(len(f)))
	c.buf = append(b, f...)
	if _, err := c.w.Write(c.buf); err != nil {
		c.err = fmt.Errorf("fabric: capture: %w", err)
		return
	}
	c.frames++
}
