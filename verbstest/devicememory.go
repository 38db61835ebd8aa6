package verbstest

import (
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/ioctl"
	"github.com/goverbs/goverbs/internal/uapi"
)

// deviceMemory is the size of a machine's device memory. Programs map it in their own files, but
// together they can allocate no more.
const deviceMemory = 256 << 10

// deviceMemoryStart returns where mlx5_ib maps device memory in the node: page 0 of its command.
func deviceMemoryStart() int64 {
	return uapi.MLX5_IB_MMAP_DEVICE_MEM << 8 * int64(unix.Getpagesize())
}

// mapDeviceMemory maps the device memory of a node for the device, as long as f is reachable.
func (f *file) mapDeviceMemory(fd int) error {
	mem, err := ioctl.Pages(fd, deviceMemoryStart(), deviceMemory, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return err
	}
	f.DeviceMemory = mem
	runtime.AddCleanup(f, func(mem []byte) { _ = ioctl.Unmap(mem) }, mem) // the whole range: it cannot fail
	return nil
}
