package api_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heftai/heft/api"
	"github.com/heftai/heft/internal/engine"
	"github.com/heftai/heft/internal/engine/enginetest"
	"github.com/heftai/heft/internal/generatetest"
)

// writeCertificate writes a certificate with a serial number and its key into dir.
func writeCertificate(t *testing.T, dir string, serial int64) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(serial), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), DNSNames: []string{"localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	cert, key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	for path, block := range map[string]*pem.Block{cert: {Type: "CERTIFICATE", Bytes: der}, key: {Type: "PRIVATE KEY", Bytes: secret}} {
		if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return cert, key
}

// TestTLS: HTTP/2 and HTTP/1.1 with streams, the check of host names on a loopback address, and a certificate that is
// replaced while the server runs.
func TestTLS(t *testing.T) {
	dir := t.TempDir()
	c, err := api.OpenCertificate(writeCertificate(t, dir, 1))
	if err != nil {
		t.Fatal(err)
	}
	m := generatetest.Spoken(t, &enginetest.Model{}, engine.Options{})
	server := api.NewServer(m, api.Options{})
	server.TLSConfig = c.Config()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- server.ServeTLS(l, "", "") }()
	defer func() { _ = server.Close(); <-served }()
	ask := func(host string, http2 bool) (*http.Response, string) {
		t.Helper()
		transport := &http.Transport{ForceAttemptHTTP2: http2, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
		defer transport.CloseIdleConnections()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://"+l.Addr().String()+"/v1/completions", strings.NewReader(`{"prompt": "a", "max_tokens": 50, "stream": true}`))
		if err != nil {
			t.Fatal(err)
		}
		r.Host = host
		resp, err := transport.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		return resp, readAll(t, resp)
	}
	for _, http2 := range []bool{true, false} {
		r, text := ask("localhost", http2)
		if r.StatusCode != 200 || (r.ProtoMajor == 2) != http2 || !strings.HasSuffix(text, "data: [DONE]\n\n") || r.TLS.PeerCertificates[0].SerialNumber.Int64() != 1 {
			t.Errorf("HTTP/2 %t: %s, %s", http2, r.Status, text)
		}
		if r, text := ask("evil.example", http2); r.StatusCode != 403 || !strings.Contains(text, "evil.example") {
			t.Errorf("HTTP/2 %t: another host: %s, %s", http2, r.Status, text)
		}
	}
	writeCertificate(t, dir, 2)
	if err := c.Reload(); err != nil {
		t.Fatal(err)
	}
	if r, _ := ask("localhost", true); r.TLS.PeerCertificates[0].SerialNumber.Int64() != 2 {
		t.Error("the old certificate is still used")
	}
	if err := errors.Join(os.WriteFile(filepath.Join(dir, "key.pem"), nil, 0o600), c.Reload()); err == nil {
		t.Error("an empty key was taken")
	}
	if r, _ := ask("localhost", true); r.StatusCode != 200 {
		t.Error("a broken file ended the service")
	}
}

// TestACertificateThatChangesIsReadAgain: Watch finds new files.
func TestACertificateThatChangesIsReadAgain(t *testing.T) {
	dir := t.TempDir()
	cert, key := writeCertificate(t, dir, 1)
	old := time.Now().Add(-time.Hour)
	for _, path := range []string{cert, key} {
		if err := os.Chtimes(path, old, old); err != nil {
			t.Fatal(err)
		}
	}
	c, err := api.OpenCertificate(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	writeCertificate(t, dir, 2)
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		go c.Watch(ctx, time.Second)
		time.Sleep(2 * time.Second)
		synctest.Wait()
	})
	pair, err := c.Config().GetCertificate(nil)
	if err != nil {
		t.Fatal(err)
	}
	if leaf, err := x509.ParseCertificate(pair.Certificate[0]); err != nil || leaf.SerialNumber.Int64() != 2 {
		t.Errorf("the certificate is %v, %v", leaf.SerialNumber, err)
	}
}

// TestProfilesAreOnTheAdminListenerOnly: the public server has no pprof, and the admin server checks host names.
func TestProfilesAreOnTheAdminListenerOnly(t *testing.T) {
	s := serve(t, generatetest.Spoken(t, &enginetest.Model{}, engine.Options{}))
	for _, path := range []string{"/debug/pprof/", "/debug/pprof/heap", "/debug/vars"} {
		if status, _ := s.text("GET", path, nil); status != 404 {
			t.Errorf("the public server's %s: status %d", path, status)
		}
	}
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	admin := api.NewAdminServer(api.Access{})
	served := make(chan error, 1)
	go func() { served <- admin.Serve(l) }()
	defer func() { _ = admin.Close(); <-served }()
	for _, c := range []struct {
		path, host string
		status     int
	}{{"/debug/pprof/", "", 200}, {"/debug/pprof/goroutine?debug=1", "localhost", 200}, {"/debug/pprof/heap", "evil.example", 403}, {"/debug/pprof/cmdline", "", 404}, {"/v1/models", "", 404}} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+l.Addr().String()+c.path, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Host = c.host
		transport := &http.Transport{DisableKeepAlives: true}
		resp, err := transport.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != c.status {
			t.Errorf("%s of host %q: %s, want %d", c.path, c.host, resp.Status, c.status)
		}
	}
}
