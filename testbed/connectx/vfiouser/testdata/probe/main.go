// Probe finds the toy in a guest, from user space.
//
//	probe DEVICE           uses it, and prints a line for each check
//	probe DEVICE pulled    reads a device that was removed by surprise
//	probe DEVICE remove    makes the kernel remove it
//	probe DEVICE rescan    makes the kernel rescan its buses
package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/mmio"
)

const (
	address, ring, count, scratch = 0x00, 0x08, 0x0c, 0x10
	table                         = 0x2000
	mapped                        = 0x4000
	vector                        = 2
	message                       = 0x5a5a0000 // the data of the interrupt
)

func main() {
	if err := run(); err != nil {
		fmt.Println("error:", err)
		os.Exit(1)
	}
}

func run() error {
	device, action := os.Args[1], strings.Join(os.Args[2:], "")
	if action == "rescan" {
		return os.WriteFile("/sys/bus/pci/rescan", []byte("1"), 0)
	}
	dir, err := find("0x15b3", device)
	if err != nil {
		return err
	}
	switch action {
	case "pulled":
		return pulled(dir)
	case "remove":
		return os.WriteFile(filepath.Join(dir, "remove"), []byte("1"), 0)
	}
	return work(dir)
}

// pulled reads the identity and a register.
func pulled(dir string) error {
	config, err := os.ReadFile(filepath.Join(dir, "config"))
	if err != nil {
		return err
	}
	bar, err := mapBAR(filepath.Join(dir, "resource0"))
	if err != nil {
		return err
	}
	fmt.Printf("identity % x\n", config[:4])
	fmt.Printf("count %#x\n", load32(bar, count))
	return unix.Munmap(bar)
}

func work(dir string) error {
	for _, name := range []string{"vendor", "device", "class", "revision", "current_link_speed", "current_link_width"} {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return err
		}
		fmt.Println(name, strings.TrimSpace(string(text)))
	}
	if err := os.WriteFile(filepath.Join(dir, "enable"), []byte("1"), 0); err != nil {
		return err
	}
	config, err := os.OpenFile(filepath.Join(dir, "config"), os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer config.Close()
	msix, err := configuration(config)
	if err != nil {
		return err
	}
	bar, err := mapBAR(filepath.Join(dir, "resource0"))
	if err != nil {
		return err
	}
	return errors.Join(registers(bar), interrupt(bar, config, msix), unix.Munmap(bar))
}

// find waits for a device to appear.
func find(vendor, device string) (string, error) {
	for limit := time.Now().Add(30 * time.Second); time.Now().Before(limit); time.Sleep(5 * time.Millisecond) {
		dirs, err := filepath.Glob("/sys/bus/pci/devices/*")
		if err != nil {
			return "", err
		}
		for _, dir := range dirs {
			v, verr := os.ReadFile(filepath.Join(dir, "vendor"))
			d, derr := os.ReadFile(filepath.Join(dir, "device"))
			if verr == nil && derr == nil && strings.TrimSpace(string(v)) == vendor && strings.TrimSpace(string(d)) == device {
				return dir, nil
			}
		}
	}
	return "", errors.New("device not found")
}

// configuration walks the capabilities, enables bus mastering, and returns the
// offset of MSI-X.
func configuration(f *os.File) (int64, error) {
	var space [256]byte
	if _, err := f.ReadAt(space[:], 0); err != nil {
		return 0, err
	}
	msix := int64(0)
	for at := space[0x34]; at != 0; at = space[at+1] {
		fmt.Printf("capability %#x\n", space[at])
		if space[at] == 0x11 {
			msix = int64(at)
			control := binary.LittleEndian.Uint16(space[at+2:])
			fmt.Println("vectors", control&0x7ff+1)
		}
	}
	fmt.Printf("bar0 %#x\n", space[0x10]&0xf)
	// Stores of one, two and four bytes: cache line size, command, a BAR.
	if _, err := f.WriteAt([]byte{0x10}, 0x0c); err != nil {
		return 0, err
	}
	if _, err := f.WriteAt([]byte{0x06, 0x04}, 0x04); err != nil {
		return 0, err
	}
	if _, err := f.WriteAt([]byte{1, 2, 3, 4}, 0x00); err != nil { // read-only
		return 0, err
	}
	if _, err := f.ReadAt(space[:16], 0); err != nil {
		return 0, err
	}
	fmt.Printf("configuration % x\n", space[:16])
	return msix, nil
}

func mapBAR(name string) ([]byte, error) {
	fd, err := unix.Open(name, unix.O_RDWR|unix.O_CLOEXEC|unix.O_SYNC, 0)
	if err != nil {
		return nil, err
	}
	var stat unix.Stat_t
	if err := unix.Fstat(fd, &stat); err != nil {
		return nil, err
	}
	fmt.Println("size", stat.Size)
	b, err := unix.Mmap(fd, 0, mapped, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	return b, errors.Join(err, unix.Close(fd))
}

// registers stores and loads in all sizes.
func registers(bar []byte) error {
	mmio.Store64(word64(bar, scratch), 0x1122334455667788)
	mmio.Store32(word32(bar, scratch+8), 0xaabbccdd)
	fmt.Printf("scratch %#x %#x %#x\n", load64(bar, scratch), load32(bar, scratch+4), load32(bar, scratch+8))
	return nil
}

// interrupt rings until the device has written its counter. The target of its
// message-signalled interrupt is a word of memory, because such an interrupt is
// only a write.
func interrupt(bar []byte, config *os.File, msix int64) error {
	page, err := unix.Mmap(-1, 0, 4096, unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_ANON|unix.MAP_PRIVATE|unix.MAP_LOCKED|unix.MAP_POPULATE)
	if err != nil {
		return err
	}
	physical, err := physicalAddress(page)
	if err != nil {
		return err
	}
	if _, err := config.WriteAt([]byte{0x00, 0x80}, msix+2); err != nil { // enable
		return err
	}
	entry := table + 16*vector
	mmio.Store32(word32(bar, entry), uint32(physical+64))
	mmio.Store32(word32(bar, entry+4), uint32((physical+64)>>32))
	mmio.Store32(word32(bar, entry+8), message)
	mmio.Store32(word32(bar, entry+12), 0) // not masked
	mmio.Store64(word64(bar, address), physical)
	before := load32(bar, count)
	for i := range uint32(3) {
		mmio.Store32(word32(page, 64), 0)
		mmio.Store32(word32(bar, ring), vector)
		if err := await(page, 0, before+i+1); err != nil {
			return fmt.Errorf("the counter in memory: %w", err)
		}
		if err := await(page, 64, message); err != nil {
			return fmt.Errorf("the interrupt: %w", err)
		}
	}
	fmt.Println("counted", load32(bar, count)-before)
	_, err = config.WriteAt([]byte{0x00, 0x00}, msix+2)
	return errors.Join(err, unix.Munmap(page))
}

// await waits for a word of memory.
func await(b []byte, at int, want uint32) error {
	for limit := time.Now().Add(20 * time.Second); time.Now().Before(limit); time.Sleep(100 * time.Microsecond) {
		if load32(b, at) == want {
			return nil
		}
	}
	return fmt.Errorf("%#x, want %#x", load32(b, at), want)
}
