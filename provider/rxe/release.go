package rxe

import (
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/ioctl"
	"github.com/goverbs/goverbs/internal/uapi"
	"github.com/goverbs/goverbs/uverbs"
)

// firstSafe is the first major version of Linux whose rxe waits before it repeats a
// request that found no receive (commit 445fd4f4fb76, in 6.0).
//
// Earlier drivers repeat the request as soon as the RNR NAK arrives. Between two
// QPs of one machine, the NAK arrives before the function that sends the request
// returns, so the loop runs inside the system call that rings the doorbell. With
// RNRRetryCount 7, which is the default here and in librdmacm, the number of repetitions
// has no limit: the call returns only when a receive is posted, which the calling
// thread can no longer do, and no signal interrupts it.
const firstSafe = 6

// laterFeatures are capabilities that rxe has had since 6.2. A driver that reports
// one of them is safe, whatever the kernel's release is: distributions backport
// newer drivers to older kernels. The reverse, an older driver in a newer kernel,
// is not known to exist. Nothing in the ABI distinguishes 6.0 and 6.1 from older
// kernels, so they are recognised by the release.
const laterFeatures = uapi.IB_UVERBS_DEVICE_ATOMIC_WRITE | uapi.IB_UVERBS_DEVICE_FLUSH_GLOBAL |
	uapi.IB_UVERBS_DEVICE_FLUSH_PERSISTENT

// kernelRelease returns the output of `uname -r`. It is a variable for tests.
var kernelRelease = func() (string, error) {
	var u unix.Utsname
	err := unix.Uname(&u)
	return unix.ByteSliceToString(u.Release[:]), err
}

// checkRelease returns an error if the kernel's rxe may loop forever in a system
// call of the process.
func checkRelease(dev *ioctl.Device) error {
	release, err := kernelRelease()
	if err != nil {
		return err
	}
	major, _, _ := strings.Cut(release, ".")
	if n, err := strconv.Atoi(major); err != nil || n >= firstSafe {
		return nil // a release that is not a number is not from Linux itself
	}
	cmd := ioctl.Get()
	defer cmd.Put()
	resp := ioctl.WriteEx[uapi.IbUverbsExQueryDeviceResp](cmd, uapi.IB_USER_VERBS_EX_CMD_QUERY_DEVICE,
		&uapi.IbUverbsExQueryDevice{})
	if err := dev.Do(cmd); err != nil {
		return err
	}
	if resp.DeviceCapFlagsEx&laterFeatures != 0 {
		return nil
	}
	return &uverbs.Error{Op: "open", Kind: uverbs.ErrNotSupported, Errno: unix.EOPNOTSUPP,
		Detail: "the rxe driver of Linux " + release + " is not safe: a send that finds no receive at a QP of " +
			"the same machine loops in the kernel, and the process cannot be killed: use Linux 6.0 or newer"}
}
