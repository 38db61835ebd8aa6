// What gRPC over TCP takes for what bench/clients and bench/rdmacost measure, apart from the library, which does not
// depend on gRPC.
module github.com/goverbs/goverbs/bench/grpc

go 1.25.0

replace github.com/goverbs/goverbs => ../../

require (
	github.com/goverbs/goverbs v0.0.0
	google.golang.org/grpc v1.77.0
	google.golang.org/protobuf v1.36.10
)

require (
	golang.org/x/net v0.46.1-0.20251013234738-63d1a5100f82 // indirect
	golang.org/x/sys v0.47.0 // indirect
	golang.org/x/text v0.30.0 // indirect
	google.golang.org/genproto/googleapis/rpc v0.0.0-20251022142026-3a174f9686a8 // indirect
)
