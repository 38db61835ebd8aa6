package verbstest

import (
	"errors"
	"net"

	"github.com/goverbs/goverbs/internal/ioctl"
	"github.com/goverbs/goverbs/internal/nldev"
	"github.com/goverbs/goverbs/internal/rdmacm"
)

// errNowhere is the error of calls by a goroutine that is on no machine.
var errNowhere = errors.New("verbstest: this goroutine is on none of the machines in memory: start it on one with " +
	"Machine.Run, and do not replace its profiler labels")

// nowhere is the machine of goroutines that are on none while there are machines in memory. They
// must not use the real one by accident.
type nowhere struct{}

func (nowhere) Devices() ([]nldev.Device, error)             { return nil, errNowhere }
func (nowhere) OpenDevice(string) (*ioctl.Device, error)     { return nil, errNowhere }
func (nowhere) PKeys(string, uint32) ([]uint16, error)       { return nil, errNowhere }
func (nowhere) InterfaceNames([]int) (map[int]string, error) { return nil, errNowhere }
func (nowhere) InterfaceIndex(string) (int, error)           { return 0, errNowhere }
func (nowhere) InterfaceAddrs() ([]net.Addr, error)          { return nil, errNowhere }
func (nowhere) OpenCM() (*rdmacm.File, error)                { return nil, errNowhere }
