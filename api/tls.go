package api

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"os"
	"sync/atomic"
	"time"
)

// A Certificate is a TLS certificate in two files, which are read again when they change. Its methods may be called
// from any goroutine.
type Certificate struct {
	cert, key string
	now       atomic.Pointer[tls.Certificate]
	seen      atomic.Pointer[[2]version]
}

// version tells contents of a file apart.
type version struct {
	changed time.Time
	size    int64
}

// OpenCertificate reads a certificate and its key in PEM. It fails if they do not belong together.
func OpenCertificate(cert, key string) (*Certificate, error) {
	c := &Certificate{cert: cert, key: key}
	return c, c.Reload()
}

// Reload reads the files again. If it fails, the certificate stays as it was.
func (c *Certificate) Reload() error {
	seen := c.versions()
	pair, err := tls.LoadX509KeyPair(c.cert, c.key)
	c.seen.Store(&seen)
	if err != nil {
		return fmt.Errorf("api: certificate %s with key %s: %w", c.cert, c.key, err)
	}
	c.now.Store(&pair)
	return nil
}

func (c *Certificate) versions() (v [2]version) {
	for i, path := range []string{c.cert, c.key} {
		if info, err := os.Stat(path); err == nil {
			v[i] = version{info.ModTime(), info.Size()}
		}
	}
	return v
}

// Watch reloads the files when they change, until ctx ends. It looks every period and logs what happened.
func (c *Certificate) Watch(ctx context.Context, period time.Duration) {
	tick := time.NewTicker(period)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if c.versions() != *c.seen.Load() {
			c.ReloadAndLog()
		}
	}
}

// ReloadAndLog is Reload; it logs what happened.
func (c *Certificate) ReloadAndLog() {
	if err := c.Reload(); err != nil {
		slog.Error("the certificate stays as it was", "reason", err)
		return
	}
	slog.Info("the certificate was read again", "file", c.cert)
}

// Config is the TLS configuration of a server with the certificate, for HTTP/2 and HTTP/1.1. Connections keep the
// certificate that they began with.
func (c *Certificate) Config() *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"},
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return c.now.Load(), nil }}
}
