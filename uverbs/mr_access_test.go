package uverbs

import "testing"

func TestAccessString(t *testing.T) {
	for _, c := range []struct {
		a    Access
		want string
	}{
		{0, "0"},
		{LocalWrite, "LocalWrite"},
		{LocalWrite | RemoteWrite | RemoteRead | RemoteAtomic, "LocalWrite|RemoteWrite|RemoteRead|RemoteAtomic"},
		{MWBindAccess | ZeroBased | OnDemand | HugeTLB, "MWBindAccess|ZeroBased|OnDemand|HugeTLB"},
		{FlushGlobal | FlushPersistent | RelaxedOrdering, "FlushGlobal|FlushPersistent|RelaxedOrdering"},
		{RemoteRead | 1<<30, "RemoteRead|bit 30"},
	} {
		if got := c.a.String(); got != c.want {
			t.Errorf("%#x is %q, want %q", uint32(c.a), got, c.want)
		}
	}
}
