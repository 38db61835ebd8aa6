package mlx5

import (
	"strings"
	"testing"

	"github.com/goverbs/goverbs/internal/sim/connectx/engine"
	"github.com/goverbs/goverbs/internal/sim/providertest"
	"github.com/goverbs/goverbs/uverbs"
)

func (s *soft) rig(r *providertest.Rig) *providertest.Rig {
	r.Work = func() {} // the device has worked when a post returns
	if strings.HasSuffix(s.t.Name(), "/Failed") {
		s.broken = engine.RuleKey
	}
	return r
}

func forKits(t *testing.T, f func(t *testing.T, k kit)) {
	for name, change := range map[string]func(*kit){
		"RoCE":        func(*kit) {},
		"InfiniBand":  func(k *kit) { k.ethernet = false },
		"no bursts":   func(k *kit) { k.noBursts = true },
		"128 bytes":   func(k *kit) { k.set.cqeSize = 128 },
		"old numbers": func(k *kit) { k.cqeVersion = 0 },
		"shared":      func(k *kit) { k.set.exclusive = 0 },
		"old kernel":  func(k *kit) { k.registers = 16 }, // before Linux 5.7
	} {
		t.Run(name, func(t *testing.T) {
			k := standard()
			change(&k)
			f(t, k)
		})
	}
}

func (k kit) pd(t *testing.T) (*soft, *uverbs.PD) {
	t.Helper()
	s := newSoft(t, k)
	return s, good(s.open(k).AllocPD())(t)
}

func TestConformance(t *testing.T) {
	forKits(t, func(t *testing.T, k kit) {
		providertest.Run(t, func(t *testing.T) *providertest.Rig {
			s, pd := k.pd(t)
			return s.rig(providertest.On(t, pd, uverbs.QPConfig{Type: uverbs.RC}))
		})
	})
}

func TestConformanceUC(t *testing.T) {
	forKits(t, func(t *testing.T, k kit) {
		providertest.RunUC(t, func(t *testing.T) *providertest.Rig {
			s, pd := k.pd(t)
			return s.rig(providertest.On(t, pd, uverbs.QPConfig{Type: uverbs.UC}))
		})
	})
}

func TestConformanceSRQ(t *testing.T) {
	forKits(t, func(t *testing.T, k kit) {
		providertest.RunSRQ(t, func(t *testing.T) *providertest.Rig {
			s, pd := k.pd(t)
			srq := good(pd.CreateSRQ(uverbs.SRQConfig{MaxWR: providertest.MaxRecvWR, MaxSGE: providertest.MaxSGE}))(t)
			return s.rig(providertest.On(t, pd, uverbs.QPConfig{Type: uverbs.RC, SRQ: srq}))
		})
	})
}

func TestConformanceUD(t *testing.T) {
	forKits(t, func(t *testing.T, k kit) {
		providertest.RunUD(t, func(t *testing.T) *providertest.Rig {
			s, pd := k.pd(t)
			return s.rig(providertest.OnUD(t, pd))
		})
	})
}
