package cm

import "errors"

// Close closes what the id has created and the id itself: rdma_destroy_ep(3). It
// leaves groups, then closes the QP, its completion queues and the SRQ. An
// established connection is ended, an open request is rejected, and a resolution is
// canceled. Close is idempotent. If something cannot be closed yet, the id stays
// open. Close returns [uverbs.ErrBusy] while other QPs use the id's queues, or what
// the kernel says.
//
// The caller must close the MRs on the id's PD. The device stays open as long as one
// of them exists.
func (id *ID) Close() error {
	id.connecting.End() // it holds the lock
	id.mu.Lock()
	if id.isClosed() {
		id.mu.Unlock()
		return nil
	}
	if err := errors.Join(id.detachAll(), id.destroyQP(), id.destroyAH(), id.destroySRQ()); err != nil {
		id.connecting.Resume()
		id.mu.Unlock()
		return err
	}
	name := id.describe()
	id.life.end(phaseClosed, closed(opWait, name))
	id.setAttrs(func() { id.pd = nil })
	unregister(id.uid)
	for m := range id.groups {
		unregister(m.uid)
	}
	_, err := id.node.file.DestroyID(id.kernelID)
	err = id.wrap("close", name, err, "")
	id.ticket.Done()
	id.node.release()
	dev, s, then := id.dev, id.syncID(), id.closed
	id.mu.Unlock()
	if then != nil {
		then()
	}

	if s != nil {
		err = errors.Join(err, s.closeSync())
	}
	if dev != nil {
		err = errors.Join(err, dev.release())
	}
	return err
}

// destroyAH closes a Group's address handle unless the QP, whose datagrams use it, is
// still open. The caller holds id.mu.
func (id *ID) destroyAH() error {
	if id.ah == nil || id.qp.Load() != nil {
		return nil
	}
	return id.ah.Close()
}

// closeSync closes the SyncID's part of the id.
func (s *SyncID) closeSync() error {
	s.closeDone()
	for _, r := range s.removeAll() {
		r.reject()
	}
	return s.pump.remove(s)
}
