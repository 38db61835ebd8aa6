// Package netconn tests the connections of package rsocket with [golang.org/x/net/nettest], which has what every
// [net.Conn] must do. It is apart from rsocket because the library does not depend on golang.org/x/net.
package netconn
