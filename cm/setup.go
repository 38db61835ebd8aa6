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

// trackMR records an MR that was created with a method of the id.
func (id *ID) trackMR(mr *uverbs.MR, err error) (*uverbs.MR, error) {
	if s := id.setup.Load(); s != nil && err == nil {
		s.mu.Lock()
		s.mrs = append(s.mrs, mr)
		s.mu.Unlock()
	}
	return mr, err
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
