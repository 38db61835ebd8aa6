package cm

// ECE holds a vendor's enhanced connection options, which the two sides of a
// connection exchange: struct ibv_ece. Devices without any leave it zero.
type ECE struct {
	VendorID uint32
	Options  uint32
}

// SetLocalECE sets what Connect or Accept tells the peer:
// rdma_set_local_ece(3). [uverbs.ErrInvalid] without a vendor,
// [uverbs.ErrClosed] after Close.
func (i *ID) SetLocalECE(e ECE) error {
	const op = "set ECE of"
	if e.VendorID == 0 {
		return invalid(op, "id", "VendorID is 0: name the vendor's number")
	}
	return i.command(op, nil, func() error {
		i.localECE = e
		return nil
	})
}

// RemoteECE returns what the peer told, zero before that:
// rdma_get_remote_ece(3).
func (i *ID) RemoteECE() ECE {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.remoteECE
}
