package rdma

import (
	"crypto/tls"
	"fmt"
	"net"
	"net/netip"

	"github.com/goverbs/goverbs/uverbs"
)

// completeTLS checks o.TLS and replaces it by a copy that permits TLS 1.3 only, without renegotiation.
func (o *Options) completeTLS() error {
	switch {
	case o.TLS == nil && o.Seal:
		return fmt.Errorf("%w: Options.Seal is set and Options.TLS is not, from which the keys come: set it, too",
			uverbs.ErrInvalid)
	case o.TLS == nil:
		return nil
	}
	if v := o.TLS.MaxVersion; v != 0 && v < tls.VersionTLS13 {
		return fmt.Errorf("%w: Options.TLS.MaxVersion is %s: leave it 0, or set it to TLS 1.3", uverbs.ErrInvalid,
			tls.VersionName(v))
	}
	o.TLS = o.TLS.Clone()
	o.TLS.MinVersion = tls.VersionTLS13
	o.TLS.Renegotiation = tls.RenegotiateNever // TLS 1.3 has none, but with another value no keys are exported
	return nil
}

// completeClientTLS is completeTLS for a client of the server at addr, whose certificate has to have the name of the
// host, unless the program has set another one.
func (o *Options) completeClientTLS(addr string) error {
	if err := o.completeTLS(); err != nil || o.TLS == nil || o.TLS.ServerName != "" || o.TLS.InsecureSkipVerify {
		return err
	}
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return nil // cm.Dial returns it
	}
	if host == "" {
		return fmt.Errorf("%w: the address has no host for the server's certificate: set Options.TLS.ServerName",
			uverbs.ErrInvalid)
	}
	if ip, err := netip.ParseAddr(host); err == nil {
		host = ip.WithZone("").String()
	}
	o.TLS.ServerName = host
	return nil
}

// completeServerTLS is completeTLS for a listener, which has to have a certificate.
func (o *Options) completeServerTLS() error {
	err := o.completeTLS()
	if t := o.TLS; err != nil || t == nil || len(t.Certificates) > 0 || t.GetCertificate != nil ||
		t.GetConfigForClient != nil {
		return err
	}
	return fmt.Errorf("%w: Options.TLS has no certificate: set Certificates, GetCertificate or GetConfigForClient",
		uverbs.ErrInvalid)
}

// checkTLS checks that both sides use TLS, or neither does. The peer, which has sent h, has the given role.
func (h *hello) checkTLS(own *Options, peer role) error {
	has := h.features&featureTLS != 0
	if has == (own.TLS != nil) {
		return nil
	}
	with, without := client, server
	if has == (peer == server) {
		with, without = server, client
	}
	return fmt.Errorf("%w: the %v uses Options.TLS and the %v does not", ErrUnauthenticated, with, without)
}
