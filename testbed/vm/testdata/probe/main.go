// Probe is a static program for the guests of package vm's tests.
package main

import (
	"fmt"
	"io"
	"net/netip"
	"os"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/nldev"
	"github.com/goverbs/goverbs/internal/sim/rtnetlink"
	"github.com/goverbs/goverbs/testbed/vm/guestinit"
)

func main() {
	if os.Getpid() == 1 {
		first()
	}
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// first runs the program as a guest's only process.
func first() {
	if err := guestinit.Start(); err != nil {
		guestinit.Fatal(err)
	}
	if err := device(); err != nil {
		guestinit.Fatal(err)
	}
	fmt.Println("probe: first process,", len(os.Args)-1, "arguments")
	if len(os.Args) > 1 && os.Args[1] == "fail" {
		guestinit.Fatal(io.ErrUnexpectedEOF)
	}
	guestinit.PowerOff()
}

// device creates a soft-RoCE device, and checks that the kernel lists it.
func device() error {
	if err := rtnetlink.AddDummy("d0"); err != nil {
		return err
	}
	if err := rtnetlink.AddAddress("d0", netip.MustParsePrefix("10.9.0.1/24")); err != nil {
		return err
	}
	if err := nldev.AddLink("rxe0", "rxe", "d0"); err != nil {
		return err
	}
	if _, err := os.Stat("/sys/class/infiniband/rxe0"); err != nil {
		return err
	}
	_, err := os.Stat("/dev/infiniband/uverbs0")
	return err
}

func run(args []string) error {
	switch args[0] {
	case "exit":
		status, err := strconv.Atoi(args[1])
		if err != nil {
			return err
		}
		os.Exit(status)
	case "env":
		fmt.Println(os.Getenv(args[1]))
	case "id":
		fmt.Println(os.Getuid(), os.Getgid())
	case "memlock":
		var l unix.Rlimit
		if err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &l); err != nil {
			return err
		}
		fmt.Println(l.Cur, l.Max)
	case "cat":
		_, err := io.Copy(os.Stdout, os.Stdin)
		return err
	case "both":
		fmt.Println("to stdout")
		fmt.Fprintln(os.Stderr, "to stderr")
	case "flood":
		line := make([]byte, 1000)
		for i := range line {
			line[i] = 'x'
		}
		for range 4000 {
			if _, err := os.Stdout.Write(line); err != nil {
				return err
			}
		}
	case "forever":
		fmt.Println("running")
		return unix.Pause()
	case "count":
		return count()
	case "crash-kernel":
		return os.WriteFile("/proc/sysrq-trigger", []byte("c"), 0)
	case "leave-child":
		return leaveChild()
	default:
		return fmt.Errorf("probe: unknown command %q", args[0])
	}
	return nil
}

// count prints the minimum time for a fixed amount of work.
func count() error {
	best := time.Duration(1 << 62)
	sum := 0
	for range 50 {
		start := time.Now()
		for i := range 10000 {
			sum += i * i
		}
		best = min(best, time.Since(start))
	}
	_, err := fmt.Println(best.Nanoseconds(), sum)
	return err
}

// leaveChild exits while a child keeps standard output open.
func leaveChild() error {
	_, err := syscall.ForkExec("/proc/self/exe", []string{"probe", "forever"},
		&syscall.ProcAttr{Files: []uintptr{0, 1, 2}})
	return err
}
