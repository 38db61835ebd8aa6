// Package s3rdma moves the data of S3 objects by RDMA, without C. A [Transport] is an http.RoundTripper for clients
// such as minio-go and the AWS SDK:
//
//	device, err := s3rdma.Open("")
//	transport := &s3rdma.Transport{Device: device, Secret: secretOf}
//	client, err := minio.New("192.0.2.1:9000", &minio.Options{Creds: creds, Transport: transport})
//
// A [Handler] wraps the http.Handler of a server:
//
//	http.ListenAndServe(":9000", &s3rdma.Handler{Next: s3, Device: device})
//
// The program also imports a provider: github.com/goverbs/goverbs/provider/all has those of all devices.
//
// # The wire
//
// Requests, status and headers travel by HTTP as before, without bodies. A request has a [Token], which names memory of
// the client. The server writes the data of a GET to it (RDMA WRITE), and reads that of a PUT from it (RDMA READ),
// through ConnectX's dynamically connected transport. The header x-amz-rdma-reply of the response shows whether it has.
//
// # Memory
//
// The client registers the memory of each request, with its length and for one direction, and deregisters it before
// anything else uses it. When a request ends without a reply, because it was canceled or the connection broke, the
// server may still use the token: then the device refuses it, also for memory that is registered later.
//
// # Security
//
// RDMA packets are neither encrypted nor authenticated, and the key of the DCTs of this wire is known. A
// host that can send in the network and guesses a key can read or write the memory of the requests in progress. Use a
// network in which only trusted hosts can send. A client names the address that the server connects to: see
// Handler.Allow, which does not work on InfiniBand.
//
// The requests to a host share a DCT and a PD, and those to other hosts have others. A server that has replied keeps a
// token, and the device may give its key to the memory of a later request to that host: then the server can reach it.
package s3rdma
