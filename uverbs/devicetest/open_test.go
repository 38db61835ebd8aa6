//go:build device

package devicetest

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/goverbs/goverbs/internal/nldev"
	"github.com/goverbs/goverbs/internal/sim/usertest"
	"github.com/goverbs/goverbs/uverbs"
	"golang.org/x/sys/unix"
)

// TestDeviceOpenErrors checks the errors of Open without the device's node, and without the
// permission to open it.
func TestDeviceOpenErrors(t *testing.T) {
	dev := openDevice(t)
	node := dev.Device().Node
	refused := func(open func() (*uverbs.Context, error), kind error, words ...string) {
		t.Helper()
		c, err := open()
		if err == nil {
			t.Fatal(errors.Join(errors.New("it opened"), c.Close()))
		}
		if !errors.Is(err, kind) {
			t.Errorf("not %v: %v", kind, err)
		}
		for _, w := range words {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("the error does not say %q: %v", w, err)
			}
		}
	}
	refused(func() (*uverbs.Context, error) { return uverbs.Open("frob7") }, uverbs.ErrNoDevice, "there is", dev.Name())

	check(t, os.Rename(node, node+".away"))
	refused(dev.Device().Open, uverbs.ErrNoNode, node, "mknod")
	check(t, os.WriteFile(node, nil, 0o666))
	refused(dev.Device().Open, uverbs.ErrNoNode, "is not the device's node")
	check(t, os.Rename(node+".away", node))

	check(t, os.Chmod(node, 0o600))
	cmd := exec.Command(os.Args[0], "-test.run=^TestDeviceOpenForbidden$", "-test.v")
	cmd.Env = append(os.Environ(), "GOVERBS_TEST_FORBIDDEN=1")
	cmd.SysProcAttr = usertest.Ordinary()
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("as an ordinary user: %v\n%s", err, out)
	}
	check(t, os.Chmod(node, 0o666))
}

// TestDeviceOpenForbidden is run by TestDeviceOpenErrors without root's rights.
func TestDeviceOpenForbidden(t *testing.T) {
	if os.Getenv("GOVERBS_TEST_FORBIDDEN") != "1" {
		return
	}
	_, err := uverbs.Open(deviceName(t))
	if !errors.Is(err, os.ErrPermission) || !strings.Contains(err.Error(), "chmod 666") {
		t.Errorf("Open without permission: %v", err)
	}
}

// TestDeviceOtherNamespace checks the error of Open in a network namespace that the device does not
// belong to, with RDMA network namespaces in exclusive mode.
func TestDeviceOtherNamespace(t *testing.T) {
	dev := openDevice(t)
	device := dev.Device()
	check(t, dev.Close())
	setNetnsMode(t, false)
	defer setNetnsMode(t, true)

	cmd := exec.Command(os.Args[0], "-test.run=^TestDeviceOpenElsewhere$", "-test.v")
	cmd.Env = append(os.Environ(), "GOVERBS_TEST_DEVICE="+string(must(json.Marshal(device))(t)))
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("in another namespace: %v\n%s", err, out)
	}
}

// TestDeviceOpenElsewhere is run by TestDeviceOtherNamespace in another network namespace.
func TestDeviceOpenElsewhere(t *testing.T) {
	text := os.Getenv("GOVERBS_TEST_DEVICE")
	if text == "" {
		return
	}
	var device uverbs.Device
	check(t, json.Unmarshal([]byte(text), &device))
	_, err := device.Open()
	if !errors.Is(err, uverbs.ErrNetns) || !errors.Is(err, unix.EPERM) ||
		!strings.Contains(err.Error(), "rdma dev set "+device.Name) {
		t.Errorf("Open from another namespace: %v", err)
	}
	if _, err := uverbs.Open(""); !errors.Is(err, uverbs.ErrNoDevice) || !strings.Contains(err.Error(), "exclusive mode") {
		t.Errorf("Open of any device from another namespace: %v", err)
	}
}

// setNetnsMode sets the mode as soon as the kernel allows it: it counts a namespace for some time
// after its last process has ended.
func setNetnsMode(t *testing.T, shared bool) {
	t.Helper()
	retry := time.NewTicker(10 * time.Millisecond)
	defer retry.Stop()
	for deadline := time.Now().Add(patience); ; <-retry.C {
		err := nldev.SetNetnsMode(shared)
		if !errors.Is(err, unix.EBUSY) || time.Now().After(deadline) {
			check(t, err)
			return
		}
	}
}
