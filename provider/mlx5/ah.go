package mlx5

import (
	"encoding/binary"
	"math/rand/v2"

	"github.com/goverbs/goverbs/internal/driver"
	"github.com/goverbs/goverbs/internal/ioctl"
	"github.com/goverbs/goverbs/internal/uapi"
	"github.com/goverbs/goverbs/uverbs"
)

// portKind is a port's link layer, which decides the form of an address vector.
type portKind uint8

const (
	unknownPort portKind = iota
	infiniBand
	ethernet
)

// kind returns the link layer of a port. It queries each port once.
func (c *deviceContext) kind(port uint8, env *driver.AHEnv) (portKind, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if k := c.ports[port]; k != unknownPort {
		return k, nil
	}
	isEthernet, err := env.Ethernet()
	if err != nil {
		return unknownPort, err
	}
	k := infiniBand
	if isEthernet {
		k = ethernet
	}
	if c.ports == nil {
		c.ports = make(map[uint8]portKind)
	}
	c.ports[port] = k
	return k, nil
}

// The fields of a datagram's address vector, by offset. The vector is laid out as in the send
// request, which adds QKey and QPN.
const (
	avRate  = 12 // and SL
	avPath  = 13
	avLID   = 14 // or UDP source port
	avMAC   = 20
	avClass = 26
	avHops  = 27
	avFlow  = 28 // GRH mark, source GID index and flow label
	avGID   = 32
	avSize  = 48

	flowGRH       = 1 << 30
	flowIndex     = 20
	flowLabelMask = 1<<20 - 1
)

// CreateAH implements driver.Context. The kernel checks the address and, on Ethernet,
// resolves the MAC address. The address vector is built here.
func (c *deviceContext) CreateAH(
	a *uverbs.AHAttr, env *driver.AHEnv, av *driver.AV, create driver.Command,
) (driver.Reply, error) {
	var reply driver.Reply
	kind, err := c.kind(a.Port, env)
	if err != nil {
		if _, refused := create(nil, nil); refused != nil { // the caller explains this error
			err = refused
		}
		return reply, err
	}
	var raw [avSize]byte
	if kind == infiniBand {
		if reply, err = create(nil, nil); err != nil {
			return reply, err
		}
		raw[avPath] = a.SrcPathBits & 0x7f
		binary.BigEndian.PutUint16(raw[avLID:], a.DLID)
		raw[avRate] = rate(a.StaticRate)<<4 | a.SL&0xf
		global(&raw, a, flowGRH)
	} else if reply, err = c.ethernetAH(a, env, &raw, create); err != nil {
		return reply, err
	}
	for i := range av {
		av[i] = binary.NativeEndian.Uint64(raw[8*i:])
	}
	return reply, nil
}

func (c *deviceContext) ethernetAH(
	a *uverbs.AHAttr, env *driver.AHEnv, raw *[avSize]byte, create driver.Command,
) (driver.Reply, error) {
	if !c.dmac {
		return driver.Reply{}, &uverbs.Error{Op: "create AH", Kind: uverbs.ErrNotSupported,
			Detail: "the kernel's mlx5_ib does not report the MAC address of a peer: use Linux 5.10 or newer"}
	}
	resp := new(uapi.Mlx5IbCreateAhResp)
	reply, err := create(nil, ioctl.BytesOf(resp))
	if err != nil {
		return reply, err
	}
	v2, err := env.RoCEv2()
	if err != nil {
		return reply, err
	}
	copy(raw[avMAC:], resp.Dmac[:])
	if v2 {
		binary.BigEndian.PutUint16(raw[avLID:], sourcePort(a.FlowLabel))
	}
	raw[avRate] = rate(a.StaticRate)<<4 | a.SL&7<<1
	global(raw, a, 0) // a GRH is always present, so no flag marks it
	return reply, nil
}

// global fills in the global part of an address, if it has one.
func global(raw *[avSize]byte, a *uverbs.AHAttr, mark uint32) {
	if !a.IsGlobal {
		return
	}
	raw[avClass], raw[avHops] = a.TrafficClass, a.HopLimit
	binary.BigEndian.PutUint32(raw[avFlow:], mark|uint32(a.SGIDIndex)<<flowIndex|a.FlowLabel&flowLabelMask)
	copy(raw[avGID:], a.DGID[:])
}

// sourcePort returns the UDP source port of RoCE v2, by which routers spread traffic: a hash of
// the flow label, or a random port if the flow label is 0.
func sourcePort(flow uint32) uint16 {
	const lowest, mask = 0xc000, 0x3fff
	if flow &= flowLabelMask; flow == 0 {
		return lowest | uint16(rand.Uint32()&mask)
	}
	return lowest | uint16(flow&mask^flow>>14)
}

// rates maps values of enum ibv_rate to the device's numbers. 0 and rates without an entry mean
// no limit.
var rates = [...]uint8{
	2: 7, 3: 8, 4: 9, 5: 10, 6: 11, 7: 12, 8: 13, 9: 14, 10: 15, // 2.5, 10, 30, 5, 20, 40, 60, 80, 120 Gb/s
	11: 11, 12: 13, 13: 15, 15: 9, 16: 15, 19: 9, 20: 13, // 14, 56, 112, 25, 100, 28, 50, rounded
}

func rate(r uverbs.Rate) uint8 {
	if int(r) >= len(rates) {
		return 0
	}
	return rates[r]
}
