package vm

import (
	"encoding/json"
	"fmt"
	"slices"
)

// maxVFIOUser is how many device models a machine can have from the start.
const maxVFIOUser = 8

// VFIOUserID returns the id of a device of Config.VFIOUser, by its index.
func VFIOUserID(i int) string { return fmt.Sprintf("vfio%d", i) }

// rootPort adds a slot for hot-plugged devices. For device models it reserves
// address space for BARs, because the firmware reserves as little as possible
// by default.
func (q *commandLine) rootPort(c Config, id string, chassis int) {
	port := fmt.Sprintf("pcie-root-port,id=%s,chassis=%d", id, chassis)
	if c.SharedMemory {
		port += ",mem-reserve=16M,pref64-reserve=256M"
	}
	q.add("-device", port)
}

// vfioUser adds the device models of the Config.
func (q *commandLine) vfioUser(c Config) error {
	for i, socket := range c.VFIOUser {
		slot := VFIOUserID(i) + "-slot"
		q.rootPort(c, slot, hotplugSlots+i+1)
		device := vfioUserDevice(socket)
		device["driver"], device["id"], device["bus"] = vfioUserDriver, VFIOUserID(i), slot
		text, err := json.Marshal(device)
		if err != nil {
			return err
		}
		q.add("-device", string(text))
	}
	return nil
}

const vfioUserDriver = "vfio-user-pci"

func vfioUserDevice(socket string) map[string]any {
	return map[string]any{"socket": map[string]any{"type": "unix", "path": socket}}
}

// AddVFIOUser hot-plugs a device model that listens on a socket. The guest must
// have SharedMemory.
func (g *Guest) AddVFIOUser(id, socket string) error {
	if !g.config.SharedMemory {
		return fmt.Errorf("vm: %s cannot reach the guest's memory: set SharedMemory in its Config", id)
	}
	if err := g.DeviceAdd(vfioUserDriver, id, vfioUserDevice(socket)); err != nil {
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.models = append(g.models, id)
	return nil
}

func (g *Guest) isVFIOUser(id string) bool {
	for i := range g.config.VFIOUser {
		if id == VFIOUserID(i) {
			return true
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Contains(g.models, id)
}
