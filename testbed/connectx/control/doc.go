// Package control injects faults into a simulated world, over a Unix socket:
// faults of the network, links, completions and commands that fail, firmware
// failures, removed devices. It also returns lists and counters.
//
// A request is one line of JSON, and so is its response:
//
//	{"id":1,"method":"set-link","params":{"port":"mlx5_0","up":false}}
//	{"id":1,"result":null}
//
// Requests of a connection are executed in order. The response is sent after
// the request and its immediate effects, such as the events of a link. An error
// has a kind, which is one of the constants of [Kind], and a detail:
//
//	{"id":2,"error":{"kind":"not found","detail":"port \"x\": Ports lists the ports"}}
//
// The methods and their parameters are those of [Client].
package control
