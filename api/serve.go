package api

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"time"

	"github.com/heftai/heft/api/generate"
	"github.com/heftai/heft/dispatch"
	"github.com/heftai/heft/internal/backlog"
	"github.com/heftai/heft/internal/topology"
)

// maxHeader is the maximum size of a request's header in bytes. It is read before memory is
// reserved.
const maxHeader = 64 << 10

// NewServer returns an HTTP server with the handler New(m, o). It disconnects clients that stall.
// The returned server does not listen yet.
func NewServer(m *generate.Model, o Options) *http.Server {
	t := o.Timeouts.withDefaults()
	c := newConnections(newService(m, o).Requests.Bytes, topology.FreeDescriptors())
	return &http.Server{Handler: c.handler(New(m, o)), MaxHeaderBytes: maxHeader, ReadHeaderTimeout: t.Header, IdleTimeout: t.Idle,
		BaseContext: noteListener, ConnContext: withConnection, ConnState: c.note}
}

// Backlog returns a listener that accepts the connections of l when their request has arrived. So
// connections that send nothing, or half a request, use little memory and do not delay others. It
// needs Linux and a TCP listener; otherwise it returns l. For HTTPS, pass its result to ServeTLS of
// s.
func Backlog(l net.Listener, s *http.Server) net.Listener {
	most := min(silentConnections, max(topology.FreeDescriptors()/8, 1))
	held, err := backlog.Listen(l, backlog.Limits{Most: most, Grace: silentGrace, Patience: s.ReadHeaderTimeout})
	if err != nil {
		slog.Warn("connections that send nothing may delay others", "reason", err)
		return l
	}
	return held
}

// Serve serves m on l until ctx ends. It answers requests at once. Unless o.Lazy is set, it reads
// the weights of the cpu tier meanwhile and moves them to memory of Heft's own. Memory follows the
// limits of the process's control groups; see [dispatch.Model.FollowLimits].
//
// When ctx ends, Serve rejects new requests with 503, waits up to o.ShutdownTimeout for the running
// ones, and returns nil. If requests take longer, it cuts them off and returns an error. Serve
// closes l. The engines of m and of o.Models have then stopped and generate no more; the caller
// closes these models.
//
// With o.Catalog m is nil; the catalog's sources start the background work of their models. Serve
// fails at once if l or a model is nil, or if o.Access has an entry that [Access.Check] rejects.
func Serve(ctx context.Context, l net.Listener, m *generate.Model, o Options) error {
	if err := o.check(l, m); err != nil {
		return err
	}
	if o.Catalog == nil {
		o.Catalog = newService(m, o).models
		o.Catalog.Each(func(m *generate.Model, _ func() any) { begin(ctx, m.Dispatched(), o.Lazy) })
	}
	s := NewServer(m, o)
	failed := make(chan error, 1)
	go func() { failed <- s.Serve(Backlog(l, s)) }()
	select {
	case err := <-failed:
		return fmt.Errorf("api: serve: %w", err)
	case <-ctx.Done():
	}
	o.Batches.Stop()
	limit := o.ShutdownTimeout
	if limit == 0 {
		limit = 30 * time.Second
	}
	drain, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
	defer cancel()
	err := o.Catalog.Shutdown(drain)
	if err != nil {
		err = fmt.Errorf("api: shutdown: requests were cut off: %w", err)
		o.Catalog.Each(func(m *generate.Model, _ func() any) { m.Close() })
	}
	if e := s.Shutdown(drain); e != nil {
		err = errors.Join(err, fmt.Errorf("api: shutdown: %w", e), s.Close())
	}
	return err
}

// check returns an error if there is no listener or no model, or if an entry of Access is invalid.
func (o *Options) check(l net.Listener, m *generate.Model) error {
	switch {
	case l == nil:
		return errors.New("api: serve: got a nil listener")
	case o.Catalog == nil && (m == nil || slices.Contains(o.Models, nil)):
		return errors.New("api: serve: got a nil model")
	}
	return o.Access.Check()
}

// begin starts the background work of a model. d is nil for a model without weights, in tests.
func begin(ctx context.Context, d *dispatch.Model, lazy bool) {
	if d == nil {
		return
	}
	d.FollowLimits(ctx, logLimit)
	if !lazy {
		d.Warm(ctx)
		d.Promote(ctx)
	}
}

// logLimit logs a new memory limit.
func logLimit(l dispatch.MemoryLimit) {
	level := slog.LevelInfo
	if l.Short > 0 {
		level = slog.LevelWarn
	}
	slog.Log(context.Background(), level, l.String())
}
