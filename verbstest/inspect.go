package verbstest

import (
	"slices"
	"strings"
)

// Resources returns the numbers of the kernel's objects on the machine's devices by kind, as "rdma
// resource" does.
func (h *host) Resources() map[string]uint64 {
	all := map[string]uint64{}
	for _, m := range h.m.all() {
		for _, k := range m.opened() {
			for kind, n := range k.Objects() {
				switch kind {
				case "PD", "CQ", "QP", "MR", "SRQ":
					all[strings.ToLower(kind)] += n
				}
			}
		}
		if n := m.net.cm.Count(m.cm); n > 0 {
			all["cm_id"] += n
		}
	}
	return all
}

// Messages returns the number of messages of a kind ("req", "rep", "rej") that the connection
// manager of the machine has received.
func (h *host) Messages(kind string) int { return h.m.net.cm.Received(h.m.cm, kind) }

// Descriptors returns the number of descriptors of the process that the machine uses itself.
func (h *host) Descriptors() int {
	n := h.m.net.cm.Descriptors()
	for _, m := range h.m.all() {
		for _, k := range m.opened() {
			n += k.Descriptors()
		}
	}
	return n
}

// RemoveDevice removes the device.
func (h *host) RemoveDevice() { h.m.RemoveDevice() }

// opened returns all files that were opened. Their locks are taken before the machine's.
func (m *Machine) opened() []*file {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.files)
}
