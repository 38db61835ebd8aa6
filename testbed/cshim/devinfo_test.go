//go:build vm

package cshim_test

import (
	"bufio"
	"fmt"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/testbed/cshim"
	"github.com/goverbs/goverbs/uverbs"
	"github.com/goverbs/goverbs/verbstest"
)

// C's ibv_devinfo reports of a device in memory what this library reports.
func TestDevinfo(t *testing.T) {
	for name, options := range map[string][]verbstest.Option{"RoCE": nil, "InfiniBand": {verbstest.InfiniBand()}} {
		t.Run(name, func(t *testing.T) {
			m := verbstest.New(t, options...)
			h := cshim.New(t, m)
			if out := output(t, h.Command("ibv_devices")); !strings.Contains(out, m.Device()) {
				t.Errorf("ibv_devices prints:\n%s", out)
			}
			got := fields(output(t, h.Command("ibv_devinfo", "-v")))
			for key, want := range described(t) {
				if got[key] != want {
					t.Errorf("%s is %q, want %q", key, got[key], want)
				}
			}
		})
	}
}

// fields returns the lines with a key and a value.
func fields(out string) map[string]string {
	all := map[string]string{}
	for s := bufio.NewScanner(strings.NewReader(out)); s.Scan(); {
		if key, value, ok := strings.Cut(s.Text(), ":\t"); ok {
			all[strings.TrimSpace(key)] = strings.TrimSpace(value)
		}
	}
	return all
}

// described returns the values of ibv_devinfo.
func described(t *testing.T) map[string]string {
	t.Helper()
	ctx, err := uverbs.Open("")
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := ctx.Close(); err != nil {
			t.Error(err)
		}
	}()
	d, err := ctx.QueryDevice()
	if err != nil {
		t.Fatal(err)
	}
	p, err := ctx.QueryPort(1)
	if err != nil {
		t.Fatal(err)
	}
	gids, err := ctx.GIDs(1)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{"hca_id": ctx.Name(), "node_guid": d.NodeGUID.String(), "fw_ver": firmware(t, d.FWVer),
		"sys_image_guid": d.SysImageGUID.String(), "vendor_id": fmt.Sprintf("0x%04x", d.VendorID),
		"max_mr_size": fmt.Sprintf("0x%x", d.MaxMRSize), "page_size_cap": fmt.Sprintf("0x%x", d.PageSizeCap),
		"num_comp_vectors":                fmt.Sprint(ctx.CompVectors()),
		"maximum available device memory": fmt.Sprintf("%dBytes", d.MaxDMSize),
		"max_cq_period":                   fmt.Sprintf("%d us", d.MaxModeratePeriod.Microseconds()),
		"port_lid":                        fmt.Sprint(p.LID), "link_layer": p.LinkLayer.String(),
		"gid_tbl_len": fmt.Sprint(p.GIDTableLen)}
	for key, n := range map[string]int{"vendor_part_id": int(d.VendorPartID), "phys_port_cnt": d.PhysPortCnt,
		"max_qp": d.MaxQP, "max_qp_wr": d.MaxQPWR, "max_sge": d.MaxSGE, "max_cq": d.MaxCQ, "max_cqe": d.MaxCQE,
		"max_mr": d.MaxMR, "max_pd": d.MaxPD, "max_qp_rd_atom": d.MaxQPRdAtom, "max_ah": d.MaxAH, "max_srq": d.MaxSRQ,
		"max_qp_init_rd_atom": d.MaxQPInitRdAtom, "max_mcast_grp": d.MaxMcastGrp, "max_srq_wr": d.MaxSRQWR,
		"max_mcast_qp_attach": d.MaxMcastQPAttach, "max_total_mcast_qp_attach": d.MaxTotalMcastQP,
		"max_srq_sge": d.MaxSRQSGE, "max_pkeys": d.MaxPKeys, "max_mw": d.MaxMW, "max_cq_count": d.MaxModerateCount} {
		all[key] = fmt.Sprint(n)
	}
	for _, g := range gids {
		all[fmt.Sprintf("GID[%3d]", g.Index)] = gidLine(g)
	}
	return all
}

// gidLine returns a GID as ibv_devinfo prints it.
func gidLine(g uverbs.GIDEntry) string {
	if g.Type == uverbs.GIDTypeRoCEv2 {
		return g.GID.String() + ", RoCE v2"
	}
	var parts []string
	for i := 0; i < 16; i += 2 {
		parts = append(parts, fmt.Sprintf("%02x%02x", g.GID[i], g.GID[i+1]))
	}
	text := strings.Join(parts, ":")
	if g.Type == uverbs.GIDTypeRoCEv1 {
		text += ", RoCE v1"
	}
	return text
}

// firmware returns a version as libmlx5 prints it.
func firmware(t *testing.T, version string) string {
	t.Helper()
	var major, minor, sub int
	if _, err := fmt.Sscanf(version, "%d.%d.%d", &major, &minor, &sub); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%d.%d.%04d", major, minor, sub)
}
