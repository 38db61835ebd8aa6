// Unload unloads kernel modules, in the order of its arguments, in guests without rmmod.
package main

import (
	"log"
	"os"

	"golang.org/x/sys/unix"
)

func main() {
	for _, name := range os.Args[1:] {
		if err := unix.DeleteModule(name, unix.O_NONBLOCK); err != nil && err != unix.ENOENT {
			log.Fatalf("%s: %v", name, err)
		}
	}
}
