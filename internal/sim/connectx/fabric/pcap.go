package fabric

import (
	"encoding/binary"
	"fmt"
	"io"
	"slices"
	"time"
)

// A Capture writes frames to a pcap file with times in nanoseconds, which
// tcpdump and tshark read.
type Capture struct {
	w      io.Writer
	sw     *Switch
	ports  []string
	buf    []byte
	frames uint64
	err    error
}

// The file header of the format.
const (
	pcapNanosecond = 0xA1B23C4D
	pcapEthernet   = 1
	pcapHeader     = 24
)

// Capture starts a capture. For the named ports it has the frames as their
// devices see them: sent frames before faults, received frames after faults.
// Without names it has each frame once, as it arrives at the switch. Each frame
// is one Write.
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

// Stop ends the capture. It returns the writer's first error, after which
// nothing was written.
func (c *Capture) Stop() error {
	c.sw.captures = slices.DeleteFunc(c.sw.captures, func(x *Capture) bool { return x == c })
	return c.err
}

// Frames returns the number of frames written.
func (c *Capture) Frames() uint64 { return c.frames }

// capture writes a frame at a port to its captures.
func (s *Switch) capture(p *port, f frame) {
	for _, c := range s.captures {
		if slices.Contains(c.ports, p.name) {
			c.write(f)
		}
	}
}

// captureAll writes a frame that arrives at the switch to the captures of the
// switch.
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
