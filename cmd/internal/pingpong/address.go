package pingpong

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"

	"github.com/goverbs/goverbs/uverbs"
)

// useGID sets the local GID: the one given by -g, else on RoCE the one that can
// reach peer, else none.
func (s *session) useGID(peer netip.Addr) error {
	var entry *uverbs.GIDEntry
	var err error
	switch {
	case s.opt.GIDIndex >= 0:
		entry, err = s.gidAt(s.opt.GIDIndex)
	case s.port.LinkLayer == uverbs.LinkEthernet:
		if entry, err = s.dev.SelectGID(s.opt.IBPort, peer); err == nil {
			fmt.Fprintf(os.Stderr, "%s: using GID %d of %s (%v, %s) to reach %v\n",
				s.opt.Name, entry.Index, s.dev.Name(), entry.Type, entry.Netdev, peer)
		}
	}
	if err != nil || entry == nil {
		return err
	}
	s.gid = uint8(entry.Index)
	for i := range s.game.QPs {
		s.local[i].GID = entry.GID
	}
	return nil
}

func (s *session) gidAt(index int) (*uverbs.GIDEntry, error) {
	entries, err := s.dev.GIDs(s.opt.IBPort)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(entries, func(e uverbs.GIDEntry) bool { return e.Index == index })
	if i < 0 {
		return nil, fmt.Errorf("port %d of %s has no GID at index %d: omit -g, or list the GIDs with `devinfo -v`",
			s.opt.IBPort, s.dev.Name(), index)
	}
	return &entries[i], nil
}

// path returns the address vector of the peer's QP, with the attributes that the C
// programs use.
func (s *session) path(remote Address) (uverbs.AHAttr, error) {
	av := uverbs.AHAttr{DLID: remote.LID, SL: s.opt.SL, Port: uint8(s.opt.IBPort)}
	switch {
	case !remote.GID.IsZero():
		av.IsGlobal, av.DGID, av.SGIDIndex, av.HopLimit = true, remote.GID, s.gid, 1
	case s.port.LinkLayer == uverbs.LinkEthernet:
		return av, errors.New("the peer sent no GID, which RoCE needs: start the C program with -g and the index of its " +
			"RoCE v2 GID")
	}
	return av, nil
}
