// Package valkey tests package valkeyrdma with Valkey's server and with the client valkey-go.
package valkey
