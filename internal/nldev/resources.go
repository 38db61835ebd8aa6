package nldev

import "github.com/goverbs/goverbs/internal/uapi"

// Resources returns the number of objects of each kind on a device, for all processes: "pd",
// "cq", "qp", "cm_id", "mr", "ctx", "srq". The set of kinds depends on the kernel. It does the
// same as `rdma resource show DEV`.
func Resources(dev string) (map[string]uint64, error) { return kernel.resources(dev) }

// CopyOnFork reports whether the kernel copies pinned pages at fork, so that pages that a device
// writes to remain those of the parent (Linux 5.12 and later).
func CopyOnFork() (bool, error) {
	v, err := kernel.system(uapi.RDMA_NLDEV_SYS_ATTR_COPY_ON_FORK)
	return v != 0, err
}

// NetnsMode reports whether all network namespaces share the RDMA devices, which is the default,
// or each device belongs to one namespace. See rdma-system(8).
func NetnsMode() (shared bool, err error) {
	v, err := kernel.system(uapi.RDMA_NLDEV_SYS_ATTR_NETNS_MODE)
	return v != 0, err
}

// SetNetnsMode sets whether all network namespaces share the RDMA devices or each device belongs
// to one. It needs CAP_NET_ADMIN, and no namespace other than the initial one may exist.
func SetNetnsMode(shared bool) error { return kernel.setNetnsMode(shared) }

func (c client) setNetnsMode(shared bool) error {
	mode := uint8(0)
	if shared {
		mode = 1
	}
	attrs := appendAttr(nil, uapi.RDMA_NLDEV_SYS_ATTR_NETNS_MODE, []byte{mode})
	_, err := fetch(c, query{op: "set namespace mode", cmd: uapi.RDMA_NLDEV_CMD_SYS_SET, attrs: attrs}, ignore)
	return err
}

func (c client) resources(dev string) (map[string]uint64, error) {
	q := query{op: "count resources of", object: dev, cmd: uapi.RDMA_NLDEV_CMD_RES_GET, ofDevice: true}
	list, err := fetch(c, q, decodeSummary)
	switch {
	case err != nil:
		return nil, err
	case len(list) == 0:
		return nil, wrap(q.op, dev, malformed("no summary"))
	}
	return list[len(list)-1], nil
}

// decodeSummary decodes the table of names and counts.
func decodeSummary(b []byte) (map[string]uint64, error) {
	out := map[string]uint64{}
	const table, entry = uapi.RDMA_NLDEV_ATTR_RES_SUMMARY, uapi.RDMA_NLDEV_ATTR_RES_SUMMARY_ENTRY
	err := eachEntry(b, table, entry, func(data []byte) error {
		var kind string
		var count uint64
		_, err := decode(data, map[uint16]any{uapi.RDMA_NLDEV_ATTR_RES_SUMMARY_ENTRY_NAME: &kind,
			uapi.RDMA_NLDEV_ATTR_RES_SUMMARY_ENTRY_CURR: &count})
		if err == nil && kind == "" {
			err = malformed("a count without a name")
		}
		out[kind] = count
		return err
	})
	return out, err
}

// system returns one attribute of the RDMA system, or 0 if this kernel does not have it.
func (c client) system(attr uint16) (uint64, error) {
	q := query{op: "read system settings", cmd: uapi.RDMA_NLDEV_CMD_SYS_GET}
	list, err := fetch(c, q, func(b []byte) (v uint64, err error) {
		_, err = decode(b, map[uint16]any{attr: &v})
		return v, err
	})
	if err != nil || len(list) == 0 {
		return 0, err
	}
	return list[len(list)-1], nil
}
