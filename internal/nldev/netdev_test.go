package nldev

import (
	"errors"
	"io/fs"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

const noSuchIndex = 1 << 30

func TestNetdevNames(t *testing.T) {
	want := map[int]string{1: "lo"} // in every namespace
	for name, f := range map[string]func([]int) (map[int]string, error){
		"ioctl": namesByIoctl, "sysfs": kernel.sys.NetdevNames, "either": NetdevNames} {
		got, err := f([]int{1, noSuchIndex})
		if d := cmp.Diff(want, got); err != nil || d != "" {
			t.Errorf("%s: %v: %s", name, err, d)
		}
	}
}

// Without sockets the names come from sysfs. Without sysfs too, the error has both reasons.
func TestNetdevNamesWithoutSockets(t *testing.T) {
	defer func(was []int, sys Sysfs) { families, kernel.sys = was, sys }(families, kernel.sys)
	families = []int{unix.AF_MAX}
	kernel.sys = tree(t, map[string]string{"class/net/eth0/ifindex": "2\n", "class/net/eth0.7/ifindex": "9\n",
		"class/net/bonding_masters": "bond0\n"})
	got, err := NetdevNames([]int{9, 3})
	if d := cmp.Diff(map[int]string{9: "eth0.7"}, got); err != nil || d != "" {
		t.Errorf("%v: %s", err, d)
	}
	kernel.sys = tree(t, map[string]string{"class/net/eth0/ifindex": "two\n"})
	if got, err := NetdevNames([]int{2}); err == nil || !errors.Is(err, unix.EAFNOSUPPORT) {
		t.Errorf("of an ifindex that is no number: %v, %v", got, err)
	}
	kernel.sys = Sysfs{Root: t.TempDir()}
	if got, err := NetdevNames([]int{2}); !errors.Is(err, unix.EAFNOSUPPORT) || !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without sysfs: %v, %v", got, err)
	}
}
