package api

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"os"
	"sync/atomic"
	"time"

	"github.com/heftai/heft/api/internal/reload"
	"github.com/heftai/heft/internal/smallfile"
)

// A Certificate is a TLS certificate in two files. Reload and Watch read them again. It is safe for
// concurrent use.
type Certificate struct {
	cert, key string
	now       atomic.Pointer[tls.Certificate]
	seen      atomic.Pointer[[2]reload.Version]
}

// OpenCertificate reads a certificate and its key in PEM format. It fails if they do not belong
// together.
func OpenCertificate(cert, key string) (*Certificate, error) {
	c := &Certificate{cert: cert, key: key}
	return c, c.Reload()
}

// Reload reads the files again. If it fails, the certificate does not change.
func (c *Certificate) Reload() error {
	seen := c.versions()
	pair, err := c.read()
	c.seen.Store(&seen)
	if err != nil {
		return fmt.Errorf("api: certificate %s with key %s: %w", c.cert, c.key, err)
	}
	c.now.Store(&pair)
	return nil
}

// read reads both files, which must be regular ones: a named pipe would block.
func (c *Certificate) read() (pair tls.Certificate, err error) {
	cert, err := smallfile.Read(c.cert, smallfile.Config)
	if err != nil {
		return pair, err
	}
	key, err := smallfile.Read(c.key, smallfile.Config)
	if err != nil {
		return pair, err
	}
	return tls.X509KeyPair(cert, key)
}

// versions returns the versions of both files. The version of a file that cannot be read is zero.
func (c *Certificate) versions() (v [2]reload.Version) {
	for i, path := range []string{c.cert, c.key} {
		if info, err := os.Stat(path); err == nil {
			v[i] = reload.VersionOf(info)
		}
	}
	return v
}

// Watch reloads the files when they change, until ctx ends. It checks after each period and logs
// the result.
func (c *Certificate) Watch(ctx context.Context, period time.Duration) {
	reload.Watch(ctx, period, func() bool { return c.versions() != *c.seen.Load() }, c.ReloadAndLog)
}

// ReloadAndLog calls Reload and logs the result.
func (c *Certificate) ReloadAndLog() {
	if err := c.Reload(); err != nil {
		slog.Error("the certificate stays as it was", "reason", err)
		return
	}
	slog.Info("the certificate was read again", "file", c.cert)
}

// Config returns the TLS configuration of a server with the certificate, for HTTP/2 and HTTP/1.1.
// Connections keep the certificate that they started with.
func (c *Certificate) Config() *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"},
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return c.now.Load(), nil }}
}
