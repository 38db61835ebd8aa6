package check

import "fmt"

// gsi checks the QP that the kernel uses for messages of the connection manager. soft-RoCE moves it to ERR if such a
// message is sent while the network interface is down, and the kernel does not move it back.
func gsi(m *machine) []Finding {
	return m.eachDevice(func(d device) (all []Finding) {
		failed, err := m.Kernel.FailedGSI(d.Name)
		if err != nil {
			return nil // a sandbox forbids it
		}
		for _, n := range failed {
			f := Finding{ID: "gsi-error", Severity: Error, Port: int(n),
				Seen: fmt.Sprintf("%s port %d: the kernel's queue pair for messages of the connection manager (GSI) is in "+
					"state ERR", d.Name, n),
				Why: "new connections time out, from here and to here, until the device is created again",
				Fix: d.reload()}
			if d.driver == "rxe" {
				f.Fix = fmt.Sprintf("rdma link del %[1]s && rdma link add %[1]s type rxe netdev %[2]s (ends all connections of "+
					"the device)", d.Name, d.netdev(n))
			}
			all = append(all, f)
		}
		return all
	})
}

// driverModules has the kernel modules of drivers that create RDMA devices. In sysfs, a device belongs to the module of
// its network driver.
var driverModules = map[string]string{
	"bnxt_re": "bnxt_re",
	"cxgb4":   "iw_cxgb4",
	"efa":     "efa",
	"erdma":   "erdma",
	"hfi1":    "hfi1",
	"hns":     "hns_roce_hw_v2",
	"irdma":   "irdma",
	"mana":    "mana_ib",
	"mlx4":    "mlx4_ib",
	"mlx5":    "mlx5_ib",
	"mthca":   "ib_mthca",
	"ocrdma":  "ocrdma",
	"qedr":    "qedr",
	"qib":     "ib_qib",
}

// reload returns the command that creates the devices of d's driver again.
func (d device) reload() string {
	const effect = " (ends all connections of its devices)"
	if name, ok := driverModules[d.driver]; ok {
		return fmt.Sprintf("modprobe -r %[1]s && modprobe %[1]s", name) + effect
	}
	return "unload the kernel module of the device's driver, and load it again" + effect
}

// netdev returns the network interface of a port.
func (d device) netdev(number uint32) string {
	for _, p := range d.ports {
		if p.number == number {
			return or(p.netdev, "INTERFACE")
		}
	}
	return "INTERFACE"
}
