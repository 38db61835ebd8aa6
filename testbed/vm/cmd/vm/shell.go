package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/testbed/vm"
)

// shell runs an interactive shell of the guest on this program's terminal.
func (o options) shell(ctx context.Context, g *vm.Guest) (status int, err error) {
	const tty = 0
	size, err := windowSize(tty)
	if err != nil {
		return 2, fmt.Errorf("a shell needs a terminal; name a command to run instead: %w", err)
	}
	restore, err := rawMode(tty)
	if err != nil {
		return 2, err
	}
	defer func() { err = errors.Join(err, restore()) }()

	name := "/bin/bash"
	if !o.config.Root {
		return 2, fmt.Errorf("a guest of architecture %s has no shell; name a static program to run", o.config.Arch)
	}
	c := g.CommandContext(ctx, name, "-i")
	c.Stdin, c.Stdout, c.TTY = os.Stdin, os.Stdout, &size
	c.Env = []string{"TERM=" + os.Getenv("TERM")}
	c.UID, c.GID = uint32(o.uid), uint32(o.gid)
	if err := c.Start(); err != nil {
		return 2, err
	}
	resized := make(chan os.Signal, 1)
	signal.Notify(resized, unix.SIGWINCH)
	defer signal.Stop(resized)
	done := make(chan error, 1)
	go func() { done <- c.Wait() }()
	for {
		select {
		case err := <-done:
			return exitStatus(err)
		case <-resized:
			size, err := windowSize(tty)
			if err == nil {
				err = c.Resize(size)
			}
			if err != nil {
				return 2, err
			}
		}
	}
}

func windowSize(fd int) (vm.WindowSize, error) {
	w, err := unix.IoctlGetWinsize(fd, unix.TIOCGWINSZ)
	if err != nil {
		return vm.WindowSize{}, err
	}
	return vm.WindowSize{Rows: w.Row, Cols: w.Col}, nil
}

// rawMode sets raw mode, as cfmakeraw(3) does.
func rawMode(fd int) (restore func() error, err error) {
	old, err := unix.IoctlGetTermios(fd, unix.TCGETS)
	if err != nil {
		return nil, err
	}
	raw := *old
	raw.Iflag &^= unix.IGNBRK | unix.BRKINT | unix.PARMRK | unix.ISTRIP | unix.INLCR | unix.IGNCR | unix.ICRNL | unix.IXON
	raw.Oflag &^= unix.OPOST
	raw.Lflag &^= unix.ECHO | unix.ECHONL | unix.ICANON | unix.ISIG | unix.IEXTEN
	raw.Cflag = raw.Cflag&^(unix.CSIZE|unix.PARENB) | unix.CS8
	raw.Cc[unix.VMIN], raw.Cc[unix.VTIME] = 1, 0
	if err := unix.IoctlSetTermios(fd, unix.TCSETS, &raw); err != nil {
		return nil, err
	}
	return func() error { return unix.IoctlSetTermios(fd, unix.TCSETS, old) }, nil
}
