package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"strings"
	"time"

	"github.com/goverbs/goverbs/bench/perftest"
)

func hostGames(messages int) []game {
	tests := []string{"send_lat", "write_lat", "read_lat", "send_bw", "write_bw", "read_bw"}
	all := append(games(tests, []int{2, 64, 1024, 4096, 16384, 65536}, messages),
		many([]int{1, 4, 16, 64, 256}, messages)...)
	return append(all, variants(messages, append(tried, "write_bw -I 64")...)...)
}

// checkArgs returns an error if args contain options of perftest that conflict with those
// of a game.
func checkArgs(args string, messages int) error {
	for _, g := range hostGames(messages) {
		name, _, _ := strings.Cut(g.test, " ")
		test, ok := perftest.TestNamed(name)
		if !ok {
			return fmt.Errorf("unknown test %s", name)
		}
		o, err := perftest.Parse(test, append(strings.Fields(args+" "+g.args), "-F", "-d", "device", "-p", "1", "host"))
		if err != nil {
			return fmt.Errorf("%s %s: %w", name, g.args, err)
		}
		if o.RDMACM || o.CommCM {
			return errors.New("the server must listen on TCP: omit -R and -z")
		}
	}
	return nil
}

// hosts returns the two hosts of the command line.
func (b *bench) hosts() *machine {
	o := b.options
	m := &machine{
		address:      o.address,
		device:       o.device,
		args:         o.args,
		serverDevice: cmp.Or(o.serverDevice, o.device),
		serverArgs:   cmp.Or(o.serverArgs, o.args),
		port:         firstPort,
		programs:     map[string][2]string{},
		dir:          b.dir,
	}
	m.server = remote{name: o.server, control: filepath.Join(b.dir, "s.ssh"), sudo: o.sudo}
	m.client = remote{name: o.client, control: filepath.Join(b.dir, "c.ssh"), sudo: o.sudo}
	if a, err := netip.ParseAddr(o.address); err == nil && a.Is6() { // perftest talks IPv4 unless it is told
		for _, args := range []*string{&m.args, &m.serverArgs} {
			if !strings.Contains(*args, "--ipv6-addr") {
				*args += " --ipv6-addr"
			}
		}
	}
	return m
}

// errLacks is the error of hosts that lack something.
var errLacks = errors.New("nothing was measured")

// onHosts compares the programs between two real hosts.
func (b *bench) onHosts(ctx context.Context) (err error) {
	const place = "hosts"
	m := b.hosts()
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
		defer cancel()
		err = errors.Join(err, m.server.(remote).leave(ctx), m.client.(remote).leave(ctx))
	}()
	if err := b.ready(ctx, m); err != nil {
		return fmt.Errorf("%w:\n%w", errLacks, err)
	}
	out, err := m.client.run(ctx, "sh", "-c", "cat /proc/cpuinfo; echo; "+versions)
	if err != nil {
		return err
	}
	here := b.here
	cpus, version, _ := strings.Cut(out, "\nVersion")
	b.here.Machine, b.here.CPUs = cmp.Or(processor(cpus), m.arch), strings.Count("\n"+cpus, "\nprocessor")
	b.here.Library = library("Version" + version)
	b.place(place, m, m.about)
	b.here = here
	b.play(ctx, m, place, hostGames(b.messages))
	for _, next := range []func(){
		func() { b.fail(place, "objects", b.objects(ctx, m, place, 1, 100, 1000, 10000)) },
		func() { b.fail(place, "cmtime", b.cmtime(ctx, m, place)) },
		func() { b.requests(ctx, m, place, []int{1, 100, 1000}) },
	} {
		if ctx.Err() == nil {
			next()
		}
	}
	return nil
}
