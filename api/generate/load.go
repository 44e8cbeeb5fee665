package generate

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/heftai/heft/api/wire"
	"github.com/heftai/heft/dispatch"
)

// retryLoad is the time after which loading a model is tried again if it failed.
const retryLoad = 5 * time.Second

// leases holds the models that a request uses.
type leases struct {
	mu      sync.Mutex
	ended   bool
	release []func()
}

type leasesKey struct{}

// WithLeases returns a context for one request. Models that [Models.Use] returns for that context
// stay loaded until end is called. Without WithLeases they stay loaded until the context passed to
// Use ends.
func WithLeases(ctx context.Context) (leased context.Context, end func()) {
	l := &leases{}
	return context.WithValue(ctx, leasesKey{}, l), func() {
		l.mu.Lock()
		list := l.release
		l.ended, l.release = true, nil
		l.mu.Unlock()
		for _, release := range list {
			release()
		}
	}
}

// lease keeps e loaded for the request of ctx. The caller holds ms.mu.
func (ms *Models) lease(ctx context.Context, e *entry) {
	if e.source.Open == nil { // it stays loaded anyway
		return
	}
	e.users++
	e.unload = false
	release := func() { ms.release(e, true) }
	if l, ok := ctx.Value(leasesKey{}).(*leases); ok {
		l.mu.Lock()
		defer l.mu.Unlock()
		if !l.ended {
			l.release = append(l.release, release)
			return
		}
	}
	context.AfterFunc(ctx, release)
}

// release ends a use of e. used reports whether a request did use e.
func (ms *Models) release(e *entry, used bool) {
	ms.mu.Lock()
	defer ms.mu.Unlock()
	e.users--
	if used {
		e.used = time.Now()
	}
	if e.users == 0 {
		ms.signal()
		ms.unloadAsked(e)
	}
}

// Unload unloads the base model of a name, or the first one for "", as soon as no request uses it.
// A request that starts before then keeps it loaded. The next request loads it again. Unload has no
// effect on models that are not loaded or that stay loaded; see [NewModels]. Errors are of type
// *wire.Error: of kind NoModel for an unknown name, and of kind Forbidden if the client may not use
// the model or change the server.
func (ms *Models) Unload(ctx context.Context, name string) error {
	if err := wire.ClientOf(ctx).CheckAdmin(); err != nil {
		return err
	}
	name, err := ms.allowed(ctx, name)
	if err != nil {
		return err
	}
	ms.mu.Lock()
	defer ms.mu.Unlock()
	e, _, _ := ms.find(name)
	switch {
	case e == nil:
		return noModel(name)
	case e.source.Open != nil && e.opened != nil:
		e.unload = true
		ms.unloadAsked(e)
	}
	return nil
}

// unloadAsked unloads e if Unload was called and no request uses it. The caller holds ms.mu.
func (ms *Models) unloadAsked(e *entry) {
	if !e.unload || e.users > 0 || ms.draining {
		return
	}
	ms.loaders.Go(func() {
		for ms.unloadUnused(e) {
			time.Sleep(idleGlance)
		}
	})
}

// unloadUnused unloads e if it still should be. It returns true if a sequence of e has to end
// first.
func (ms *Models) unloadUnused(e *entry) (again bool) {
	<-ms.work
	defer func() { ms.work <- struct{}{} }()
	ms.mu.Lock()
	asked := e.unload && e.users == 0 && e.opened != nil && !ms.draining
	var opened *Opened
	if asked && e.idle() {
		opened = ms.leave(e)
	}
	ms.mu.Unlock()
	if opened != nil {
		opened.end()
	}
	return asked && opened == nil
}

// Use returns the model of a name, or the first one for "". It keeps the model loaded for the
// request of ctx; see [WithLeases]. If necessary, it loads the model and waits. Errors are of type
// *wire.Error: of kind NoModel for an unknown name, Forbidden if the client may not use the model,
// Loading if it takes too long, and Unavailable if the model cannot be loaded.
func (ms *Models) Use(ctx context.Context, name string) (*Model, error) {
	name, err := ms.allowed(ctx, name)
	if err != nil {
		return nil, err
	}
	ms.mu.Lock()
	e, adapter, l, err := ms.use(ctx, name)
	if err != nil {
		ms.mu.Unlock()
		return nil, err
	}
	opened := e.opened
	ms.mu.Unlock()
	switch {
	case adapter != nil:
		return adapter, nil
	case l == nil:
		return opened.Model, nil
	}
	switch m, err := l.attach(opened, opened.Model); { // reads files
	case errors.Is(err, dispatch.ErrNoAdapter):
		return nil, noModel(name)
	case err != nil:
		return nil, loadError(name, err)
	default:
		return m, nil
	}
}

// use returns the loaded model of a name with a lease. The caller holds ms.mu; use unlocks it while
// it waits.
func (ms *Models) use(ctx context.Context, name string) (*entry, *Model, *lora, error) {
	timeout := time.NewTimer(ms.options.LoadTimeout)
	defer timeout.Stop()
	for {
		e, adapter, l := ms.find(name)
		switch {
		case e == nil:
			return nil, nil, nil, noModel(name)
		case e.opened != nil:
			ms.lease(ctx, e)
			return e, adapter, l, nil
		case ms.draining:
			return nil, nil, nil, errDraining()
		case e.state == ModelFailed && time.Since(e.failed) < retryLoad:
			return nil, nil, nil, loadError(e.source.Name, e.err)
		}
		if e.state != ModelLoading {
			ms.begin(e)
		}
		if err := ms.await(ctx, e, timeout.C); err != nil {
			return nil, nil, nil, err
		}
	}
}

// await waits until loading e has ended. If no other request waits, it cancels loading when ctx or
// timeout ends. The caller holds ms.mu; await unlocks it while it waits.
func (ms *Models) await(ctx context.Context, e *entry, timeout <-chan time.Time) (err error) {
	done := e.done
	e.waiting++
	ms.mu.Unlock()
	select {
	case <-done:
	case <-timeout:
		err = &wire.Error{Kind: wire.Loading, RetryAfter: time.Second,
			Message: fmt.Sprintf("The model `%s` is not loaded yet; retry after 1 s.", e.source.Name)}
	case <-ctx.Done():
		err = AsError(context.Cause(ctx), "")
	}
	ms.mu.Lock()
	if e.waiting--; err != nil && e.waiting == 0 && e.done == done {
		e.cancel() // no effect if loading has ended
	}
	return err
}

func loadError(name string, err error) error {
	return &wire.Error{Kind: wire.Unavailable, RetryAfter: retryLoad, Err: err,
		Message: fmt.Sprintf("The model `%s` cannot be loaded: %v.", name, err)}
}

// begin starts to load e. The caller holds ms.mu.
func (ms *Models) begin(e *entry) {
	ctx, cancel := context.WithCancel(context.Background())
	e.state, e.err, e.done, e.cancel = ModelLoading, nil, make(chan struct{}), cancel
	ms.loaders.Go(func() {
		defer cancel()
		select {
		case <-ms.work: // no other model is being loaded or unloaded
			opened, err := ms.open(ctx, e)
			ms.finish(e, opened, err)
			ms.work <- struct{}{} // only now, because MakeRoom does not find e before
		case <-ctx.Done():
			ms.finish(e, nil, ctx.Err())
		}
	})
}

// open loads e. The caller holds ms.work.
func (ms *Models) open(ctx context.Context, e *entry) (*Opened, error) {
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	opened, err := e.source.Open(ctx)
	if err == nil && (opened == nil || opened.Model == nil) {
		err = errors.New("generate: Source.Open has returned no model and no error")
	}
	return opened, err
}

// finish stores the result of loading e.
func (ms *Models) finish(e *entry, opened *Opened, err error) {
	if err == nil {
		ms.mu.Lock()
		hooks := ms.loaded
		ms.mu.Unlock()
		for _, f := range hooks {
			f(opened.Model)
		}
	}
	ms.mu.Lock()
	defer ms.mu.Unlock()
	switch {
	case err == nil:
		e.state, e.opened, e.used = ModelReady, opened, time.Now()
		e.adapters = opened.Model.Adapters()
		slog.Info("model loaded", "model", e.source.Name)
	case errors.Is(err, context.Canceled):
		e.state = ModelKnown
	default:
		e.state, e.err, e.failed = ModelFailed, err, time.Now()
		slog.Error("a model cannot be loaded", "model", e.source.Name, "reason", err)
	}
	close(e.done)
	ms.signal()
}

// ErrNoOther is the error of [Models.MakeRoom] if no other model is loaded.
var ErrNoOther = errors.New("generate: no other model is loaded")

// MakeRoom unloads the model that has been idle for the longest time and returns true. If all
// models are in use and wait is false, it returns false. If wait is true, it waits until a model is
// idle or ctx ends; then it returns ctx's error. It returns ErrNoOther if no model can be unloaded.
// Only Source.Open may call it.
func (ms *Models) MakeRoom(ctx context.Context, wait bool) (bool, error) {
	for {
		ms.mu.Lock()
		e, loaded := ms.idlest(time.Now())
		changed := ms.changed
		var opened *Opened
		if e != nil {
			opened = ms.leave(e)
		}
		ms.mu.Unlock()
		switch {
		case opened != nil:
			opened.end()
			return true, nil
		case !loaded:
			return false, ErrNoOther
		case !wait:
			return false, nil
		}
		select {
		case <-changed:
		case <-time.After(idleGlance): // a sequence may end after its request
		case <-ctx.Done():
			return false, ctx.Err()
		}
	}
}

// idleGlance is the time between checks whether engines are idle.
const idleGlance = 20 * time.Millisecond

// idlest returns the least recently used model among those that are idle and were not used since
// before. loaded reports whether there are models that could be unloaded once they are idle. The
// caller holds ms.mu.
func (ms *Models) idlest(before time.Time) (least *entry, loaded bool) {
	for _, e := range ms.entries {
		if e.opened == nil || e.source.Open == nil {
			continue
		}
		loaded = true
		if e.used.After(before) || !e.idle() {
			continue
		}
		if least == nil || e.used.Before(least.used) {
			least = e
		}
	}
	return least, loaded
}

// idle reports whether e is loaded and no request uses it. The caller holds ms.mu.
func (e *entry) idle() bool {
	return e.opened != nil && e.users == 0 && e.waiting == 0 && e.opened.Model.Sequences() == (Sequences{})
}

// leave marks e as not loaded. The caller holds ms.mu, and afterwards calls end on the result
// without it.
func (ms *Models) leave(e *entry) *Opened {
	opened := e.opened
	e.state, e.opened, e.unload = ModelKnown, nil, false
	for _, l := range e.loras { // no request attaches one, because none uses e
		l.mu.Lock()
		l.of, l.attached = nil, nil
		l.mu.Unlock()
	}
	slog.Info("model unloaded", "model", e.source.Name)
	ms.signal()
	return opened
}

// end stops the engine and releases the model.
func (o *Opened) end() {
	o.Model.Close()
	if o.Close != nil {
		o.Close()
	}
}

// UnloadIdle unloads models that have been idle for ModelsOptions.IdleUnload. It returns when ctx
// ends.
func (ms *Models) UnloadIdle(ctx context.Context) {
	idle := ms.options.IdleUnload
	if idle <= 0 {
		return
	}
	tick := time.NewTicker(max(idle/4, time.Millisecond))
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		select {
		case <-ms.work:
		case <-ctx.Done():
			return
		}
		for {
			ms.mu.Lock()
			var opened *Opened
			if e, _ := ms.idlest(time.Now().Add(-idle)); e != nil {
				opened = ms.leave(e)
			}
			ms.mu.Unlock()
			if opened == nil {
				break
			}
			opened.end()
		}
		ms.work <- struct{}{}
	}
}

// Shutdown rejects new requests and waits until all running requests have ended. If ctx ends
// earlier, it returns ctx's error.
func (ms *Models) Shutdown(ctx context.Context) error {
	ms.mu.Lock()
	ms.draining = true
	var list []*Model
	for _, e := range ms.entries {
		if e.cancel != nil {
			e.cancel()
		}
		if e.opened != nil {
			list = append(list, e.opened.Model)
		}
	}
	ms.mu.Unlock()
	var errs []error
	for _, m := range list {
		errs = append(errs, m.Shutdown(ctx))
	}
	return errors.Join(errs...)
}

// Close ends all requests and releases the models that were loaded on demand.
func (ms *Models) Close() {
	ms.mu.Lock()
	ms.draining = true
	for _, e := range ms.entries {
		if e.cancel != nil {
			e.cancel()
		}
	}
	ms.mu.Unlock()
	ms.loaders.Wait()
	<-ms.work // UnloadIdle may be unloading a model
	defer func() { ms.work <- struct{}{} }()
	ms.mu.Lock()
	var list []*Opened
	for _, e := range ms.entries {
		if e.opened != nil && e.source.Open != nil {
			list = append(list, ms.leave(e))
		}
	}
	ms.mu.Unlock()
	for _, o := range list {
		o.end()
	}
}
