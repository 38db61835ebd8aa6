// Package devinfo is the program devinfo, which cmd/devinfo documents.
package devinfo

import (
	"bufio"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"

	"github.com/goverbs/goverbs/internal/version"
	_ "github.com/goverbs/goverbs/provider/all"
	"github.com/goverbs/goverbs/uverbs"
)

// Main is the main function of the program.
func Main() {
	opt, err := parseOptions(os.Args[1:], os.Stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return
	case err == nil && opt.version:
		err = version.Print(os.Stdout, "devinfo")
	case err == nil:
		err = run(opt, os.Stdout)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "devinfo:", err)
		os.Exit(1)
	}
}

// run prints the devices that opt selects. If one fails, it still prints the
// others.
func run(opt *options, w io.Writer) error {
	devices, err := uverbs.Devices()
	if err != nil {
		return err
	}
	out := bufio.NewWriter(w)
	if opt.list {
		printList(out, devices)
		return out.Flush()
	}
	infos, errs := collectAll(devices, opt)
	if opt.json {
		errs = append(errs, printJSON(out, infos))
	} else {
		for _, d := range infos {
			printDevice(out, d, opt.verbose)
		}
	}
	return errors.Join(append(errs, out.Flush())...)
}

// printList prints the names of the devices.
func printList(w io.Writer, devices []uverbs.Device) {
	plural := "s"
	if len(devices) == 1 {
		plural = ""
	}
	fmt.Fprintf(w, "%d HCA%s found:\n", len(devices), plural)
	for _, d := range devices {
		fmt.Fprintf(w, "\t%s\n", d.Name)
	}
	fmt.Fprintln(w)
}
