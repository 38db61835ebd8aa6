// Peak runs a program, and then prints the largest amount of memory that was
// resident in it.
//
//	peak cmtime -s 10.9.0.1 -c 10000
package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"

	"github.com/goverbs/goverbs/bench/kit"
)

func main() { kit.Main("peak", run) }

func run(program []string) error {
	if len(program) == 0 {
		return errors.New("there is no program: name it with its arguments")
	}
	c := exec.Command(program[0], program[1:]...)
	c.Stdin, c.Stdout, c.Stderr = os.Stdin, os.Stdout, os.Stderr
	err := c.Run()
	if c.ProcessState == nil {
		return err
	}
	usage, ok := c.ProcessState.SysUsage().(*syscall.Rusage)
	if !ok {
		return errors.Join(err, errors.New("the system does not report what the program has used"))
	}
	_, printed := fmt.Printf("peak %d\n", usage.Maxrss*1024)
	return errors.Join(err, printed)
}
