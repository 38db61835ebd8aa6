package check

import (
	"fmt"
	"strconv"
	"strings"
)

// cmDefaults checks what the connection manager uses by default: the type of GIDs and the type of service. The kernel
// shows it in configfs once a directory of the device's name exists there.
func cmDefaults(m *machine) []Finding {
	return m.each(func(d device, p port) []Finding {
		dir := []string{"sys", "kernel", "config", "rdma_cm", d.Name, "ports", strconv.Itoa(int(p.number))}
		mode := m.read(append(dir[:len(dir):len(dir)], "default_roce_mode")...)
		if !p.ethernet || mode == "" {
			return nil
		}
		if !strings.HasSuffix(mode, "v2") {
			return []Finding{{ID: "cm-roce-v1", Severity: Warning,
				Seen: fmt.Sprintf("the connection manager uses %s on %s port %d", mode, d.Name, p.number),
				Why:  "peers that use RoCE v2 do not receive the packets",
				Fix:  "echo 'RoCE v2' > /" + strings.Join(append(dir, "default_roce_mode"), "/")}}
		}
		tos := m.number(append(dir, "default_roce_tos")...)
		return []Finding{fact("tos", "the connection manager uses the type of service %d on %s port %d", max(tos, 0),
			d.Name, p.number)}
	})
}

// flowControl checks whether an adapter has priority flow control for any priority.
func flowControl(m *machine) []Finding {
	return m.each(func(d device, p port) []Finding {
		if !p.ethernet || p.netdev == "" || d.driver == "rxe" {
			return nil // soft-RoCE has no such queues
		}
		enabled, err := m.Kernel.FlowControl(p.netdev)
		if err != nil {
			return nil // the driver does not report it
		}
		if enabled != 0 {
			var list []string
			for n := range 8 {
				if enabled>>n&1 == 1 {
					list = append(list, strconv.Itoa(n))
				}
			}
			return []Finding{fact("pfc", "%s has flow control for the priorities %s", p.netdev, strings.Join(list, ", "))}
		}
		return []Finding{{ID: "pfc", Severity: Note, Seen: p.netdev + " has flow control for no priority",
			Why: "a congested switch drops packets, and each lost packet costs a timeout or a retry",
			Fix: "dcb pfc set dev " + p.netdev + " prio-pfc all:off 3:on (and the same at the switch, for the traffic of RDMA)"}}
	})
}

// lossCounters are counters that grow when the network loses packets, which PFC or ECN prevent.
var lossCounters = []string{"out_of_sequence", "packet_seq_err", "local_ack_timeout_err"}

// counters checks whether the network has lost packets.
func counters(m *machine) []Finding {
	return m.each(func(d device, p port) []Finding {
		if d.driver == "rxe" {
			return nil // Its counters have other names, and it runs on networks that lose packets.
		}
		var seen []string
		for _, name := range lossCounters {
			n := m.number("sys", "class", "infiniband", d.Name, "ports", strconv.Itoa(int(p.number)), "hw_counters", name)
			if n > 0 {
				seen = append(seen, fmt.Sprintf("%s %d", name, n))
			}
		}
		if len(seen) == 0 {
			return nil
		}
		fix := "perfquery -x (counters of the subnet)"
		if p.ethernet {
			fix = fmt.Sprintf("dcb pfc show dev %[1]s; dcb pfc set dev %[1]s prio-pfc all:off 3:on (and the same at the switch)",
				or(p.netdev, "INTERFACE"))
		}
		return []Finding{{ID: "loss", Severity: Note,
			Seen: fmt.Sprintf("%s port %d has counted packets that were lost, or peers that ended, since it was created: %s",
				d.Name, p.number, strings.Join(seen, ", ")),
			Why: "each lost packet costs a timeout or a retry; a congested network with priority flow control loses none",
			Fix: fix}}
	})
}
