package cm

import (
	"errors"
	"sync"

	"github.com/goverbs/goverbs/uverbs"
)

// setupMRs are the MRs that a program has created with an id's methods during the
// setup of its connection. They are closed if the setup fails.
type setupMRs struct {
	mu  sync.Mutex
	mrs []*uverbs.MR
}

func (s *setupMRs) close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	for _, mr := range s.mrs {
		errs = append(errs, mr.Close())
	}
	return errors.Join(errs...)
}
