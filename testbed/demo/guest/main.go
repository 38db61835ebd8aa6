// Guest is the only program in the demo's initramfs. As the init process it loads
// the kernel's modules, creates an rxe device and starts itself twice more, as
// server and as client.
package main

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/goverbs/goverbs/internal/nldev"
	"github.com/goverbs/goverbs/internal/sim/rtnetlink"
	_ "github.com/goverbs/goverbs/provider/all"
	"github.com/goverbs/goverbs/testbed/vm/guestinit"
	"github.com/goverbs/goverbs/uverbs"
	"golang.org/x/sys/unix"
)

const (
	address = "10.9.0.1"
	port    = "7471"
)

func main() {
	var err error
	switch {
	case os.Getpid() == 1:
		if err := runInit(); err != nil {
			printLine("%v", err)
		}
		guestinit.PowerOff()
	case len(os.Args) > 1 && os.Args[1] == "server":
		err = serve()
	default:
		err = call()
	}
	if err != nil {
		printLine("%s: %v", strings.Join(os.Args[1:], " "), err)
		os.Exit(1)
	}
}

// printLine prints a line that the host prints too.
func printLine(format string, args ...any) { fmt.Printf("demo: "+format+"\n", args...) }

// runInit is the init process.
func runInit() error {
	if err := guestinit.Start(); err != nil {
		return err
	}
	if err := announce(); err != nil {
		return err
	}
	if err := rtnetlink.AddDummy("d0"); err != nil {
		return err
	}
	if err := rtnetlink.AddAddress("d0", netip.MustParsePrefix(address+"/24")); err != nil {
		return err
	}
	if err := nldev.AddLink("rxe0", "rxe", "d0"); err != nil {
		return err
	}
	if err := describe(); err != nil {
		return err
	}
	return runBoth()
}

func announce() error {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return err
	}
	info, err := os.Stat("/proc/self/exe")
	if err != nil {
		return err
	}
	printLine("Linux %s is up; its root holds this program (%.1f MB, static) and kernel modules",
		unix.ByteSliceToString(u.Release[:]), float64(info.Size())/1e6)
	return nil
}

func describe() error {
	dev, err := uverbs.Open("")
	if err != nil {
		return err
	}
	defer dev.Close()
	p, err := dev.QueryPort(1)
	if err != nil {
		return err
	}
	choices, err := dev.RankGIDs(1, netip.MustParseAddr(address))
	if err != nil {
		return err
	}
	printLine("%s: driver %s, port %v, %v, MTU %v", dev.Name(), dev.Device().Driver(), p.State, p.LinkLayer, p.ActiveMTU)
	for i, c := range choices {
		verdict := "not used"
		if i == 0 {
			verdict = "chosen"
		}
		printLine("  %s: GID %d %v, %v: %s", verdict, c.Index, c.GID, c.Type, c.Reason)
	}
	return nil
}

// runBoth runs server and client as separate processes.
func runBoth() error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	before, err := nldev.Resources("rxe0")
	if err != nil {
		return err
	}
	var ends [2]*exec.Cmd
	for i, role := range []string{"server", "client"} {
		ends[i] = exec.CommandContext(ctx, "/proc/self/exe", role)
		ends[i].Stdout, ends[i].Stderr = os.Stdout, os.Stderr
		if err := ends[i].Start(); err != nil {
			return fmt.Errorf("starting the %s: %w", role, err)
		}
	}
	for _, end := range ends {
		if err := end.Wait(); err != nil {
			return fmt.Errorf("the %s failed: %w", end.Args[1], err)
		}
	}
	after, err := nldev.Resources("rxe0")
	if err != nil {
		return err
	}
	for _, kind := range []string{"pd", "cq", "qp", "mr"} {
		if after[kind] != before[kind] {
			return fmt.Errorf("both have ended, but the kernel has %d %ss instead of %d", after[kind], kind, before[kind])
		}
	}
	printLine("both have ended, and the kernel holds nothing of theirs")
	printLine("all bytes arrived as they were sent")
	return nil
}
