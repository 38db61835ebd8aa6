package devinfo

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/goverbs/goverbs/uverbs"
	"github.com/goverbs/goverbs/uverbs/ether"
)

// A deviceInfo has all printed attributes of a device.
type deviceInfo struct {
	device  uverbs.Device
	attr    *uverbs.DeviceAttr
	ether   *ether.DeviceAttr
	boardID string // "" if the driver reports none
	vectors int
	ports   []portInfo
}

// A portInfo has all printed attributes of a port.
type portInfo struct {
	number int
	attr   *uverbs.PortAttr
	gids   []uverbs.GIDEntry
	pkeys  []uint16 // for JSON only
}

// collectAll queries the devices that opt selects. errs has the errors of those
// that failed.
func collectAll(devices []uverbs.Device, opt *options) (infos []*deviceInfo, errs []error) {
	found := false
	for _, d := range devices {
		if opt.device != "" && opt.device != d.Name {
			continue
		}
		found = true
		info, err := open(d, opt)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		infos = append(infos, info)
	}
	if !found {
		errs = append(errs, explainNone(opt.device))
	}
	return infos, errs
}

// explainNone returns the reason why the device does not exist, by opening it.
func explainNone(name string) error {
	c, err := uverbs.Open(name)
	if err != nil {
		return err
	}
	return errors.Join(errors.New("the device has appeared only now: try again"), c.Close())
}

func open(d uverbs.Device, opt *options) (info *deviceInfo, err error) {
	c, err := d.Open()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	return collect(c, opt)
}

// collect queries an open device.
func collect(c *uverbs.Context, opt *options) (*deviceInfo, error) {
	attr, err := c.QueryDevice()
	if err != nil {
		return nil, err
	}
	ethernet, err := ether.QueryDevice(c)
	if err != nil {
		return nil, err
	}
	info := &deviceInfo{device: c.Device(), attr: attr, ether: ethernet, vectors: c.CompVectors()}
	if info.boardID, err = boardID(c.Name()); err != nil {
		return nil, err
	}
	if opt.port > attr.PhysPortCnt {
		return nil, fmt.Errorf("%s has no port %d: its last port is %d", c.Name(), opt.port, attr.PhysPortCnt)
	}
	for n := 1; n <= attr.PhysPortCnt; n++ {
		if opt.port != 0 && opt.port != n {
			continue
		}
		p, err := collectPort(c, n, opt.json)
		if err != nil {
			return nil, err
		}
		info.ports = append(info.ports, p)
	}
	return info, nil
}

func collectPort(c *uverbs.Context, n int, pkeys bool) (p portInfo, err error) {
	p.number = n
	if p.attr, err = c.QueryPort(n); err != nil {
		return p, err
	}
	if p.gids, err = c.GIDs(n); err != nil || !pkeys {
		return p, err
	}
	p.pkeys, err = c.PKeys(n)
	return p, err
}

// boardID returns the board ID, which some drivers report in sysfs, or "".
func boardID(device string) (string, error) {
	b, err := os.ReadFile(filepath.Join("/sys/class/infiniband", device, "board_id"))
	if errors.Is(err, os.ErrNotExist) {
		return "", nil
	}
	return strings.TrimSpace(string(b)), err
}
