// Devinfo prints the attributes of RDMA devices and their ports, including GIDs and P_Keys. Its options and output are
// those of rdma-core's ibv_devinfo. With -json it prints all attributes that the library reports as one JSON document.
//
//	devinfo -v -d mlx5_0
//	devinfo -json | jq '.[].Ports[].GIDs[].GID'
package main

import "github.com/goverbs/goverbs/cmd/internal/devinfo"

func main() { devinfo.Main() }
