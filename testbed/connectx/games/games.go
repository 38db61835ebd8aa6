// Package games has the pairs of C programs that software ConnectX adapters are tested with, in guests and in memory.
package games

import (
	"regexp"
	"slices"
	"strings"
)

// A Game is a run of a pair of C programs. Both get the same arguments; the
// client also gets the server's address.
type Game struct {
	Program string
	Args    string
	Core    bool // run for all pairs of ends; others only for one
}

// String returns the game's name as a test.
func (g Game) String() string { return strings.ReplaceAll(g.Program+" "+g.Args, " ", "_") }

// Figure returns what the client prints when it has succeeded.
func (g Game) Figure() string {
	args := strings.Fields(g.Args)
	value := func(option string) string { return args[slices.Index(args, option)+1] }
	switch {
	case g.Program == "ibv_xsrq_pingpong":
		return "" // it prints no figures
	case strings.HasPrefix(g.Program, "ibv_"):
		return value("-n") + " iters in"
	case slices.Contains(args, "-a"):
		return "\n 8388608 "
	case slices.Contains(args, "-s"):
		return "\n " + value("-s") + " "
	}
	return "\n 8 " // bytes of an atomic
}

// Complaint matches error messages of programs. Several exit with status 0
// nevertheless.
var Complaint = regexp.MustCompile(`(?i)invalid data|error|fail|couldn't|unable`)

// Pingpongs are rdma-core's examples. They check what they receive.
var Pingpongs = []Game{
	{"ibv_rc_pingpong", "-c -s 1 -n 200", true},
	{"ibv_rc_pingpong", "-c -e -s 4096 -n 100", true},
	{"ibv_rc_pingpong", "-c -s 65536 -n 20", false},
	{"ibv_rc_pingpong", "-c -e -s 1048576 -n 5 -m 4096", false},
	{"ibv_rc_pingpong", "-c -N -s 4096 -n 100", false},
	{"ibv_uc_pingpong", "-c -s 4096 -n 100", true},
	{"ibv_uc_pingpong", "-c -e -s 65536 -n 20", false},
	{"ibv_ud_pingpong", "-c -s 1024 -n 100", false},
	{"ibv_ud_pingpong", "-c -e -s 1 -n 100", true},
	{"ibv_srq_pingpong", "-c -s 4096 -n 20", false},
	{"ibv_srq_pingpong", "-c -e -s 512 -n 20", true},
	{"ibv_xsrq_pingpong", "-s 4096 -n 20", true},
	{"ibv_xsrq_pingpong", "-e -s 65536 -n 10", false},
}

// Perftests are benchmarks. A few iterations are enough for a test.
var Perftests = []Game{
	{"ib_send_lat", "-s 64 -n 200", true},
	{"ib_send_lat", "-s 64 -n 200 -c UD", false},
	{"ib_send_lat", "-s 2048 -n 100 -c UC", false},
	{"ib_send_bw", "-s 2048 -n 200 -q 8", true},
	{"ib_send_bw", "-s 8388608 -n 5 -e", false},
	{"ib_send_bw", "-s 1024 -n 200 -c UD", false},
	{"ib_send_bw", "-s 65536 -n 20 -c UC", false},
	{"ib_send_bw", "-s 8192 -n 100 --use-srq -q 8 -b", false},
	{"ib_write_lat", "-s 8388608 -n 5", false},
	{"ib_write_lat", "-s 64 -n 100 -c UC", false},
	EverySize,
	{"ib_write_bw", "-s 65536 -n 20 -q 8", true},
	{"ib_write_bw", "-s 65536 -n 20 -c UC -b", false},
	{"ib_read_lat", "-s 1048576 -n 5", true},
	{"ib_read_lat", "-s 1 -n 200", false},
	{"ib_read_bw", "-s 8388608 -n 5", false},
	{"ib_read_bw", "-s 65536 -n 20 -q 8", false},
	{"ib_atomic_lat", "-n 100 -A CMP_AND_SWAP", true},
	{"ib_atomic_bw", "-n 100 -q 8 -A FETCH_AND_ADD", false},
}

// EverySize uses all sizes from 2 bytes to 8 MiB, which takes long: it is run
// for one pair of ends per link layer.
var EverySize = Game{"ib_write_bw", "-a -n 5", false}

// CoreOf returns the games to be run everywhere.
func CoreOf(lists ...[]Game) (all []Game) {
	for _, games := range lists {
		for _, g := range games {
			if g.Core {
				all = append(all, g)
			}
		}
	}
	return all
}
