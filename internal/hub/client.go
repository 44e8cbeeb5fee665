package hub

import (
	"context"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync/atomic"
	"time"
)

// A Client fetches from one hub into one cache. It is safe for concurrent use, and other processes
// may use the same cache.
type Client struct {
	config   Config
	endpoint *url.URL
	http     *http.Client
	slots    chan struct{} // one a request in progress
	reached  atomic.Bool   // something has answered
	system   system
}

// system has what tests replace.
type system struct {
	sleep   func(ctx context.Context, d time.Duration) error
	jitter  func() float64 // in [0, 1)
	writeAt func(f *os.File, p []byte, offset int64) (int, error)
	symlink func(target, path string) error
	link    func(old, path string) error
	part    int64         // bytes of a file that one request asks for
	idle    time.Duration // how long a connection may bring nothing
}

// The shares of a download. A part is big enough that a request's start does not count,
// and small enough that what a killed process loses does not either.
const (
	partSize    = 64 << 20
	idleTimeout = 30 * time.Second
)

// New checks the configuration. It fetches and writes nothing. The caller closes the client.
func New(config Config) (*Client, error) {
	if config.Endpoint == "" {
		config.Endpoint = DefaultEndpoint
	}
	if config.UserAgent == "" {
		config.UserAgent = "heft"
	}
	if config.Connections <= 0 {
		config.Connections = 8
	}
	if config.Retries <= 0 {
		config.Retries = 6
	}
	if config.Cache == "" {
		return nil, failf(Disk, "the configuration has no folder for the cache")
	}
	endpoint, err := url.Parse(strings.TrimRight(config.Endpoint, "/"))
	if err != nil || endpoint.Host == "" || endpoint.Scheme != "http" && endpoint.Scheme != "https" {
		return nil, failf(BadName, "got endpoint %s, want an http or https address", printable(config.Endpoint))
	}
	if strings.ContainsFunc(config.Token, func(r rune) bool { return r <= ' ' || r >= 0x7f }) {
		return nil, failf(BadName, "the token has invalid characters")
	}
	// Each request has a connection of its own: several ranges over one connection are not faster.
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	transport := &http.Transport{
		Proxy:                 config.Proxy,
		Protocols:             &protocols,
		DialContext:           (&net.Dialer{Timeout: idleTimeout}).DialContext,
		TLSHandshakeTimeout:   idleTimeout,
		ResponseHeaderTimeout: idleTimeout,
		MaxIdleConnsPerHost:   config.Connections,
		IdleConnTimeout:       idleTimeout,
	}
	return &Client{
		config:   config,
		endpoint: endpoint,
		http: &http.Client{
			Transport:     transport,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
		slots: make(chan struct{}, config.Connections),
		system: system{
			sleep: sleep, jitter: rand.Float64, writeAt: (*os.File).WriteAt,
			symlink: os.Symlink, link: os.Link, part: partSize, idle: idleTimeout,
		},
	}, nil
}

// Close closes idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// slot waits until another request may run. The caller calls release at its end.
func (c *Client) slot(ctx context.Context) (release func(), err error) {
	select {
	case c.slots <- struct{}{}:
		return func() { <-c.slots }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
