package s3rdma_test

import (
	"context"
	"fmt"
	"log"
	"net/http"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/goverbs/goverbs/s3rdma"
)

// A client of minio-go moves data by RDMA where the server does.
func ExampleTransport() {
	device, err := s3rdma.Open("")
	if err != nil {
		log.Print(err) // everything travels by HTTP
	}
	defer device.Close()
	transport := &s3rdma.Transport{
		Device: device,
		Secret: func(context.Context, string) (string, error) { return secretKey, nil },
		Observe: func(t s3rdma.Transfer) {
			fmt.Println(t.Method, t.Path, t.Bytes, t.Err)
		},
	}
	defer transport.Close()
	client, err := minio.New("192.0.2.1:9000", &minio.Options{
		Creds:     credentials.NewStaticV4(accessKey, secretKey, ""),
		Transport: transport,
	})
	if err != nil {
		log.Fatal(err)
	}
	_, err = client.FPutObject(context.Background(), "bucket", "object", "/tmp/object", minio.PutObjectOptions{})
	if err != nil {
		log.Fatal(err)
	}
}

// A server moves the data of its objects by RDMA for clients that ask for it.
func ExampleHandler() {
	device, err := s3rdma.Open("")
	if err != nil {
		log.Print(err) // every token is declined
	}
	defer device.Close()
	h := &s3rdma.Handler{Next: http.FileServer(http.Dir("/srv/objects")), Device: device}
	defer h.Close()
	log.Print(http.ListenAndServe(":9000", h))
}
