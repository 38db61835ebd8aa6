package nldev

import "testing"

func TestNUMANode(t *testing.T) {
	s := tree(t, map[string]string{
		"class/infiniband/mlx5_0/device":        "-> ../../../devices/pci/0000:3b:00.0",
		"devices/pci/0000:3b:00.0/numa_node":    "1\n",
		"class/infiniband/irdma0/device":        "-> ../../../devices/pci/0000:5e:00.0/ice.roce.0",
		"devices/pci/0000:5e:00.0/ice.roce.0/x": "",
		"devices/pci/0000:5e:00.0/numa_node":    "3\n",
		"class/infiniband/mlx5_1/device":        "-> ../../../devices/pci/0000:af:00.0",
		"devices/pci/0000:af:00.0/numa_node":    "-1\n",
		"class/infiniband/mlx5_2/device":        "-> ../../../devices/pci/0000:b0:00.0",
		"devices/pci/0000:b0:00.0/numa_node":    "two\n",
		"class/infiniband/rxe0/parent":          "eth0\n",
	})
	for dev, want := range map[string]int{"mlx5_0": 1, "irdma0": 3, "mlx5_1": -1, "mlx5_2": -1, "rxe0": -1, "none": -1,
		"../net": -1} {
		if n := s.NUMANode(dev); n != want {
			t.Errorf("%s: node %d, want %d", dev, n, want)
		}
	}
}
