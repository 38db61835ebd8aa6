package mlx5

import (
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// settings are the settings from the environment. Names and defaults are those of the C library.
type settings struct {
	blueFlame bool // use BlueFlame
	preferBF  bool // use BlueFlame also for requests without inline data
	registers int  // number of registers for QPs
	exclusive int  // number of registers that are not shared
	cqeSize   int
	scatter   bool // short messages arrive in completions

	qpPages, cqPages, srqPages, wqPages pageKind // pages for the rings
}

// A pageKind is a kind of pages to allocate.
type pageKind uint8

const (
	smallPages pageKind = iota
	hugeOrSmallPages
	hugePages
)

// Limits of the C library: MLX5_MAX_BFREGS, and the number of registers that may be shared
// (MLX5_MED_BFREGS_TSHOLD).
const (
	maxRegisters = 512
	maxShared    = 12
)

// readSettings parses the environment on a CPU with pages of pageSize bytes.
func readSettings(getenv func(string) string, pageSize int) (settings, error) {
	s := settings{
		blueFlame: !on(getenv("MLX5_SHUT_UP_BF"), false),
		preferBF:  on(getenv("MLX5_POST_SEND_PREFER_BF"), true),
		scatter:   on(getenv("MLX5_SCATTER_TO_CQE"), true),
	}
	var err error
	for _, v := range []struct {
		name              string
		to                *int
		unset, low, limit int
	}{
		{"MLX5_TOTAL_UUARS", &s.registers, 16, 1, maxRegisters},
		{"MLX5_NUM_LOW_LAT_UUARS", &s.exclusive, 4, 0, maxRegisters},
		{"MLX5_CQE_SIZE", &s.cqeSize, 64, 64, 128},
	} {
		if *v.to, err = number(v.name, getenv(v.name), v.unset, v.low, v.limit); err != nil {
			return s, err
		}
	}
	if s.cqeSize != 64 && s.cqeSize != 128 {
		return s, badSetting("MLX5_CQE_SIZE", strconv.Itoa(s.cqeSize), "64 or 128")
	}
	for _, v := range []struct {
		name string
		to   *pageKind
	}{
		{"MLX_QP_ALLOC_TYPE", &s.qpPages},
		{"MLX_CQ_ALLOC_TYPE", &s.cqPages},
		{"MLX_SRQ_ALLOC_TYPE", &s.srqPages},
		{"MLX_RWQ_ALLOC_TYPE", &s.wqPages},
	} {
		if *v.to, err = pagesNamed(v.name, getenv(v.name)); err != nil {
			return s, err
		}
	}
	s.registers = max(s.registers, pageSize/uarSize*uarUsable) // at least those of one page
	s.registers = align(s.registers, uarUsable)
	s.exclusive = min(max(s.exclusive, s.registers-maxShared), s.registers)
	return s, nil
}

// on parses a flag: 0 is off, anything else is on.
func on(v string, unset bool) bool {
	if v == "" {
		return unset
	}
	return v != "0"
}

func number(name, v string, unset, low, limit int) (int, error) {
	if v == "" {
		return unset, nil
	}
	n, err := strconv.Atoi(v)
	if err != nil || n < low || n > limit {
		return 0, badSetting(name, v, strconv.Itoa(low)+" to "+strconv.Itoa(limit))
	}
	return n, nil
}

// pagesNamed parses a kind of pages. The C library also has names for contiguous memory, but no
// current kernel provides it. PREFER_CONTIG and ALL therefore select the next best kind.
func pagesNamed(name, v string) (pageKind, error) {
	switch strings.ToUpper(v) {
	case "", "ANON", "PREFER_CONTIG":
		return smallPages, nil
	case "PREFER_HUGE", "ALL":
		return hugeOrSmallPages, nil
	case "HUGE":
		return hugePages, nil
	}
	return 0, badSetting(name, v, "ANON, HUGE, PREFER_HUGE, PREFER_CONTIG or ALL")
}

func badSetting(name, v, want string) error {
	return invalid("open", "the environment says %s=%q, which must be %s: unset it", name, v, want)
}

func environment() (settings, error) { return readSettings(os.Getenv, unix.Getpagesize()) }
