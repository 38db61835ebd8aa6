package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"math/big"
	"net"
	"time"

	"github.com/goverbs/goverbs/bench/measure"
	"github.com/goverbs/goverbs/rdma"
	"github.com/goverbs/goverbs/rsocket"
)

// sealed returns rdma with messages that are sealed, and TLS on package rsocket. Both use AES-128-GCM.
func sealed(ctx context.Context, addr string) ([]*measure.Level, error) {
	config, err := certified()
	if err != nil {
		return nil, err
	}
	easy, err := newEasy(ctx, addr, &rdma.ListenOptions{Options: rdma.Options{KeepAlive: -1, TLS: config, Seal: true}})
	if err != nil {
		return nil, err
	}
	easy.Read, easy.Write = nil, nil
	l, err := rsocket.Listen("tcp", addr+":0")
	if err != nil {
		return nil, err
	}
	stream, err := newStream(tls.NewListener(l, config), func(addr string) (net.Conn, error) {
		c, err := rsocket.Dial("tcp", addr)
		if err != nil {
			return nil, err
		}
		t := tls.Client(c, config)
		if err := t.HandshakeContext(ctx); err != nil {
			return nil, errors.Join(err, c.Close())
		}
		return t, nil
	})
	if err != nil {
		return nil, err
	}
	easy.Name, stream.Name = "_sealed", "_tls"
	return []*measure.Level{easy, stream}, nil
}

// certified returns a configuration of a client and a server whose certificate both know.
func certified() (*tls.Config, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	const name = "rdmacost"
	now := time.Now()
	t := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{name}, NotBefore: now.Add(-time.Hour),
		NotAfter: now.Add(24 * time.Hour), IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign}
	der, err := x509.CreateCertificate(rand.Reader, t, t, key.Public(), key)
	if err != nil {
		return nil, err
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	pool.AddCert(cert)
	return &tls.Config{MinVersion: tls.VersionTLS13, ServerName: name, RootCAs: pool,
		Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}, nil
}
