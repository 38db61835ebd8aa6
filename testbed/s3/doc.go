// Package s3 tests package s3rdma on the software ConnectX.
package s3
