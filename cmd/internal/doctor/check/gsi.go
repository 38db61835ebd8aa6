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
				Fix: fmt.Sprintf("modprobe -r %[1]s && modprobe %[1]s (ends all connections of its devices)", d.module())}
			if d.driver == "rxe" {
				f.Fix = fmt.Sprintf("rdma link del %[1]s && rdma link add %[1]s type rxe netdev %[2]s (ends all connections of "+
					"the device)", d.Name, d.netdev(n))
			}
			all = append(all, f)
		}
		return all
	})
}

// module returns the kernel module of the device's driver.
func (d device) module() string {
	if d.driver == "mlx5" {
		return "mlx5_ib"
	}
	return d.driver
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
