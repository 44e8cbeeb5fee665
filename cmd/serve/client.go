package main

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"syscall"

	"github.com/heftai/heft/internal/cmdline"
	"github.com/heftai/heft/internal/repl"
	"github.com/heftai/heft/internal/smallfile"
)

// clientFlags configure how a command reaches a server.
type clientFlags struct {
	APIKey string `name:"api-key" help:"Send this key; prefer HEFT_API_KEY: other users can see command lines." placeholder:"K"`
	TLSCA  string `name:"tls-ca" help:"Trust the CA certificates in this PEM file too." placeholder:"FILE"`
}

func (f *clientFlags) client(url string) (*repl.Client, error) {
	url = strings.TrimSuffix(strings.TrimSuffix(url, "/"), "/v1")
	if !strings.Contains(url, "://") {
		url = "http://" + url
	}
	if scheme, _, _ := strings.Cut(url, "://"); !strings.EqualFold(scheme, "http") && !strings.EqualFold(scheme, "https") {
		return nil, cmdline.Misusef("--url: got %q, want an address that begins with http:// or https://", url)
	}
	client := &repl.Client{URL: url, Key: f.APIKey}
	if f.TLSCA == "" {
		return client, nil
	}
	pem, err := smallfile.Read(f.TLSCA, smallfile.Config)
	if err != nil {
		return nil, cmdline.Misusef("--tls-ca: %w", err)
	}
	trusted, err := x509.SystemCertPool()
	if err != nil {
		trusted = x509.NewCertPool() // the system has no pool
	}
	if !trusted.AppendCertsFromPEM(pem) {
		return nil, cmdline.Misusef("--tls-ca %s: got no certificate, want a file in PEM", f.TLSCA)
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.TLSClientConfig = &tls.Config{RootCAs: trusted}
	client.HTTP = &http.Client{Transport: transport}
	return client, nil
}

// reachable adds a way out to err if no server answers, or if its certificate is not trusted.
func reachable(client *repl.Client, err error) error {
	var untrusted x509.UnknownAuthorityError
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("no server answers at %s: start one with serve, or name one with --url", client.URL)
	case errors.As(err, &untrusted):
		return fmt.Errorf("%w: use --tls-ca FILE with the certificate of its CA", err)
	}
	return err
}
