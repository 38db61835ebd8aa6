// Package control lets tests and people tell a simulated world to misbehave, over
// a Unix socket: faults of the network, links, completions and commands that
// fail, firmware that dies, devices that are pulled out. It counts and lists, too.
//
// A request is one line of JSON, and so is its response:
//
//	{"id":1,"method":"set-link","params":{"port":"mlx5_0","up":false}}
//	{"id":1,"result":null}
//
// Requests of a connection are answered in order. A response tells that the
// request was carried out, with all that follows from it at once, such as events
// of a link. Its error has a kind, which is one of the constants of [Kind], and a
// detail that says what to do about it:
//
//	{"id":2,"error":{"kind":"no such thing","detail":"port \"x\": Ports lists those there are"}}
//
// The methods and their parameters are those of [Client], which is the other end.
package control
