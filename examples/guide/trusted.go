package guide

import (
	"crypto/tls"
	"crypto/x509"

	"github.com/goverbs/goverbs/rdma"
)

// Trusted returns the options of a side with a certificate, for peers with certificates of the same authority.
func Trusted(own tls.Certificate, authority *x509.CertPool) rdma.Options {
	return rdma.Options{TLS: &tls.Config{
		Certificates: []tls.Certificate{own},
		RootCAs:      authority, // of servers
		ClientCAs:    authority, // of clients
		ClientAuth:   tls.RequireAndVerifyClientCert,
	}}
}
