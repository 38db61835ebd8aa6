// Package valkeyrdma connects to Valkey over RDMA without C. It speaks the protocol of Valkey 8.1 and newer, and each
// connection is a [net.Conn], for the unchanged client github.com/valkey-io/valkey-go:
//
//	client, err := valkey.NewClient(valkey.ClientOption{
//		InitAddress: []string{"192.0.2.1:6379"},
//		DialCtxFn:   valkeyrdma.DialCtxFn,
//	})
//
// The program also imports a provider: github.com/goverbs/goverbs/provider/all has those of all devices.
package valkeyrdma
