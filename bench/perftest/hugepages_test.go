package perftest

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/uverbs"
)

// TestHugePages checks the numbers of huge pages that tests need, and the errors if there are fewer.
func TestHugePages(t *testing.T) {
	file := filepath.Join(t.TempDir(), "meminfo")
	const text = "MemAvailable:  1000000 kB\nHugePages_Total:     10\nHugePages_Free:       4\n" +
		"HugePages_Rsvd:       1\n"
	write := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(text + "Hugepagesize:       2048 kB\n")
	for args, want := range map[string]string{
		"write_lat":                              "",
		"write_bw -s 3M":                         "", // three pages
		"write_bw -s 4M":                         "4 huge pages of 2048 KiB, and 3 are free: write 11 to /proc/",
		"send_bw -q 3":                           "",
		"send_bw -q 100":                         "take 7 huge pages",
		"read_bw -s 8M -a":                       "take 8 huge pages",
		"write_bw -q 3 -s 64 --mr_per_qp":        "",
		"write_bw -q 4 -s 64 --mr_per_qp":        "take 4 huge pages",
		"send_lat -n 4294967296 -s 64 -p 18515":  "-n here: the times of",
		"send_lat -D 5 -s 1073741824 -c RC host": "take 1024 huge pages",
	} {
		name, rest, _ := strings.Cut(args, " ")
		err := normalized(t, name, append(strings.Fields(rest), "--use_hugepages")...).checkMemory(file)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", args, err, want)
		}
	}
	write(text)
	err := normalized(t, "write_bw", "--use_hugepages").checkMemory(file)
	if err == nil || !strings.Contains(err.Error(), "it has no Hugepagesize: the kernel has no huge pages") {
		t.Error(err)
	}
}

// TestUseHugePages runs a test with huge pages on two devices in memory, if the machine has enough. Otherwise the run
// must fail before it opens the device.
func TestUseHugePages(t *testing.T) {
	const command = "write_bw -n 100 -s 64 -q 2 --mr_per_qp --use_hugepages"
	if err := normalized(t, "write_bw", strings.Fields(command + " -b")[1:]...).checkHugePages("/proc/meminfo", 4,
		4096); err == nil {
		newPair().play(t, command)
		return
	}
	o, err := Parse(Test{Write, true}, strings.Fields(command)[1:])
	if err != nil {
		t.Fatal(err)
	}
	err = run(t.Context(), o, new(strings.Builder), func(string) (*uverbs.Context, error) {
		t.Error("the device is opened")
		return nil, uverbs.ErrNoDevice
	})
	var e *Error
	if !errors.As(err, &e) || e.Option != "--use_hugepages" || e.Side != Here {
		t.Error(err)
	}
}
