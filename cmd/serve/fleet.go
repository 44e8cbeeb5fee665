package main

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"runtime"
	"slices"
	"sync"

	"github.com/heftai/heft/api/generate"
	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/dispatch"
	"github.com/heftai/heft/internal/cmdline"
	"github.com/heftai/heft/internal/lora"
)

// A fleet loads models within one memory limit. The plans of all loaded models together are within it; the runtime,
// requests and adapters on demand count once. A new model uses the free memory if as many of its weights stay in memory
// as when it runs alone. Otherwise idle models are unloaded, least recently used first. If the minimum of the new model
// does not fit next to models in use, these shrink (see share.go). If that is not enough, the new model waits until one
// is idle.
type fleet struct {
	ctx     context.Context // of background work
	command *runCmd
	request request
	models  *generate.Models
	ledger  *dispatch.Ledger
	start   int64 // the limit of the host's memory at the start

	mu     sync.Mutex
	limit  int64 // of the host's memory, now
	loaded []*loaded
	drafts int64 // bytes of the draft model
	heap   *heapLimit
	notify []func(n int64)

	shares sync.Mutex // one change of shares at a time; taken before mu
}

func newFleet(ctx context.Context, c *runCmd, w request) (*fleet, error) {
	budgets, err := dispatch.Budgets(w.options.MaxMemory)
	if err != nil {
		return nil, err
	}
	f := &fleet{ctx: ctx, command: c, request: w, ledger: new(dispatch.Ledger),
		models: generate.NewCatalog(generate.ModelsOptions{LoadTimeout: c.LoadTimeout, IdleUnload: c.IdleUnload})}
	for _, b := range budgets {
		if b.Device == devicemap.CPU {
			f.start, f.limit = b.Limit, b.Limit
		}
	}
	for i, m := range w.models {
		source := generate.Source{Name: m.name, Created: m.source.created(), Open: func(ctx context.Context) (*generate.Opened, error) { return f.open(ctx, i) }}
		if err := f.models.Add(source); err != nil {
			return nil, err
		}
	}
	return f, f.addAdapters()
}

// addAdapters registers the adapters of --lora for other models than the first, and those of --lora-dir, each for the
// model that its config names.
func (f *fleet) addAdapters() error {
	names, memory, err := f.command.dynamic(f.start, len(f.request.others) > 0)
	if err != nil {
		return err
	}
	f.request.options.AdapterMemory = memory
	for _, a := range f.request.others {
		if err := f.models.AddAdapter(a.model, a.Name, a.Dir); err != nil {
			return cmdline.Misusef("--lora %s/%s=%s: %w", a.model, a.Name, a.Dir, err)
		}
	}
	for _, name := range names {
		taken := slices.ContainsFunc(f.request.options.Adapters, func(a dispatch.Adapter) bool { return a.Name == name })
		if !taken {
			dir := filepath.Join(f.command.LoraDir, name)
			taken = f.models.AddAdapter(f.models.BaseOf(lora.BaseModel(dir)), name, dir) != nil
		}
		if taken {
			slog.Warn("an adapter of --lora-dir has the name of another model and is not served", "adapter", name)
		}
	}
	return nil
}

// limitNow returns the current limit of the host's memory in bytes.
func (f *fleet) limitNow() int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.limit
}

// setLimit changes the limit of the host's memory. taken is the memory of the plans, which may
// exceed it.
func (f *fleet) setLimit(limit, taken int64) {
	f.mu.Lock()
	f.limit = limit
	notify := f.notify
	f.mu.Unlock()
	f.ledger.SetLimit(max(limit, taken) - dispatch.RuntimeBytes - f.texts())
	for _, call := range notify {
		call(dispatch.RequestMemory(limit))
	}
}

// notifyRequests calls call with the memory for requests each time the limit of the host's memory
// changes.
func (f *fleet) notifyRequests(call func(n int64)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.notify = append(f.notify, call)
}

// draft opens the i-th model without planning it.
func (f *fleet) draft(ctx context.Context, i int) (*draft, error) {
	o := f.request.options
	o.Ledger = f.ledger
	if i > 0 {
		o.Adapters = nil // those of --lora
	}
	d, err := f.command.open(f.request.models[i], o)
	if err != nil {
		return nil, err
	}
	if err := f.command.checkLength(d.skeleton); err != nil {
		if len(f.request.models) == 1 && f.request.eager {
			_ = d.checkpoint.Close() // the error tells more
			return nil, err
		}
		d.options.Context = mostTokens(d.skeleton) // with several models, each gets at most its maximum length
	}
	d.options.MaxSequences = f.command.sequencesOf(ctx, d)
	return d, nil
}

// loadFirst loads the first model at the start, before all others.
func (f *fleet) loadFirst(ctx context.Context) (*loaded, error) {
	d, err := f.draft(ctx, 0)
	if err != nil {
		return nil, err
	}
	if err := f.beginDrafter(d); err != nil {
		_ = d.checkpoint.Close() // the error tells more
		return nil, err
	}
	plan, options, err := f.planFirst(d)
	if err != nil {
		d.drafter.close()
		_ = d.checkpoint.Close() // the error tells more
		return nil, err
	}
	l, err := f.command.bind(f.ctx, d, plan, options)
	if err != nil {
		return nil, err
	}
	f.add(l)
	if host := plan.Device(devicemap.CPU); host.LimitBytes > 0 {
		if f.drafts == 0 {
			f.start = host.LimitBytes
		}
		f.setLimit(f.start, host.Used()+f.drafts)
	}
	return l, f.models.Take(f.request.models[0].name, f.opened(l))
}

// planFirst plans the first model, with its self-draft if there is one.
func (f *fleet) planFirst(d *draft) (devicemap.Plan, dispatch.Options, error) {
	if f.command.Draft == "self" {
		return f.planSelf(d)
	}
	return d.planner.Plan(d.options)
}

// beginDrafter opens the draft model of the first model, if there is one, and leaves the rest of
// the memory to d.
func (f *fleet) beginDrafter(d *draft) (err error) {
	if n := len(f.request.models); n > 1 && f.command.Draft != "" {
		return cmdline.Misusef("--draft %s: got %d models, want one: serve one model, or leave --draft out", f.command.Draft, n)
	}
	d.drafter, err = f.command.openDrafter(f.ctx, f.request.models[0], d.options)
	if err != nil || d.drafter == nil {
		return err
	}
	f.setDrafts(d.drafter.bytes)
	d.options.HiddenStates = d.drafter.models[0].Joins() > 0
	d.options = f.within(d, f.beside(d.drafter.bytes), d.options.StrictMemory)
	return nil
}

// open loads the i-th model for a request.
func (f *fleet) open(ctx context.Context, i int) (*generate.Opened, error) {
	d, err := f.draft(ctx, i)
	if err != nil {
		return nil, err
	}
	defer f.widen() // gives others the rest of the memory
	plan, options, err := f.place(ctx, d)
	if err != nil {
		d.drafter.close()
		_ = d.checkpoint.Close() // the error tells more
		return nil, err
	}
	l, err := f.command.bind(f.ctx, d, plan, options)
	if err != nil {
		return nil, err
	}
	f.add(l)
	f.recount()
	f.begin(l)
	return f.opened(l), nil
}

// place plans a requested model: alone with its draft, or next to other models without a draft.
func (f *fleet) place(ctx context.Context, d *draft) (devicemap.Plan, dispatch.Options, error) {
	if f.command.Draft == "" {
		return f.fit(ctx, d)
	}
	d.options = f.within(d, f.limitNow(), d.options.StrictMemory)
	if err := f.beginDrafter(d); err != nil {
		return devicemap.Plan{}, d.options, err
	}
	return f.planFirst(d)
}

// setDrafts records the bytes of the draft model.
func (f *fleet) setDrafts(bytes int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.drafts = bytes
}

// fit plans a model next to the loaded ones. It may unload idle models, and waits for that.
func (f *fleet) fit(ctx context.Context, d *draft) (devicemap.Plan, dispatch.Options, error) {
	alone, options, err := d.planner.Plan(f.within(d, f.limitNow(), f.request.options.StrictMemory))
	if err != nil {
		return alone, options, err
	}
	for {
		others := f.others()
		if others == 0 {
			return alone, options, nil
		}
		beside, besideOptions, err := d.planner.Plan(f.within(d, f.beside(others), false))
		fits := err == nil && !beside.BelowLeast
		if fits && beside.Device(devicemap.CPU).WeightsBytes == alone.Device(devicemap.CPU).WeightsBytes {
			return beside, besideOptions, nil
		}
		made, err := f.models.MakeRoom(ctx, false)
		switch {
		case made:
			continue
		case err != nil && !errors.Is(err, generate.ErrNoOther):
			return beside, options, err
		case fits:
			return beside, besideOptions, nil
		case f.shrink(others):
			continue
		}
		if _, err := f.models.MakeRoom(ctx, true); err != nil {
			return beside, options, err
		}
	}
}

// within returns the options of a draft under a limit of the host's memory.
func (f *fleet) within(d *draft, limit int64, strict bool) dispatch.Options {
	return within(d.options, limit, strict)
}

// within returns the options o under a limit of the host's memory.
func within(o dispatch.Options, limit int64, strict bool) dispatch.Options {
	o.MaxMemory = slices.DeleteFunc(slices.Clone(o.MaxMemory), func(m devicemap.DeviceMemory) bool { return m.Device == devicemap.CPU })
	o.MaxMemory = append(o.MaxMemory, devicemap.DeviceMemory{Device: devicemap.CPU, Bytes: float64(limit)})
	o.StrictMemory = strict
	return o
}

// once returns the bytes of those rows of plans that count once under a limit: the runtime,
// requests, and adapters on demand.
func (f *fleet) once(limit int64) int64 {
	return dispatch.RuntimeBytes + dispatch.RequestMemory(limit) + f.request.options.AdapterMemory
}

// others returns the bytes of the plans of the loaded models, without the rows that count once.
func (f *fleet) others() (n int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	n = f.drafts
	for _, l := range f.loaded {
		n += l.takes()
	}
	return n
}

// texts returns the bytes of tokenizers and descriptions of the loaded models, which no ledger
// counts.
func (f *fleet) texts() (n int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, l := range f.loaded {
		n += l.model.Plan().Device(devicemap.CPU).RuntimeBytes - dispatch.RuntimeBytes
	}
	return n
}

// beside returns the limit for a model next to others that take the given bytes. The row for
// requests in its plan is smaller than the memory for all requests.
func (f *fleet) beside(others int64) int64 {
	return besideOf(f.limitNow(), others)
}

func besideOf(limit, others int64) int64 {
	rest := max(limit-others, 1)
	return max(rest-(dispatch.RequestMemory(limit)-dispatch.RequestMemory(rest)), 1)
}

// add records a loaded model.
func (f *fleet) add(l *loaded) {
	f.mu.Lock()
	f.loaded = append(f.loaded, l)
	heap := f.heap
	f.mu.Unlock()
	if heap != nil {
		heap.fit(f.heapRow(l))
	}
}

// heapRow returns the host's row of a model's plan, with Go's memory for all loaded models.
func (f *fleet) heapRow(l *loaded) devicemap.DevicePlan {
	host := l.model.Plan().Device(devicemap.CPU)
	host.RuntimeBytes = dispatch.RuntimeBytes + f.texts()
	return host
}

// recount updates the limit of the ledger after a model was loaded or unloaded.
func (f *fleet) recount() {
	limit := f.limitNow()
	f.setLimit(limit, f.others()+f.once(limit))
}

// remove records that a model is no longer loaded.
func (f *fleet) remove(l *loaded) {
	f.mu.Lock()
	f.loaded = slices.DeleteFunc(f.loaded, func(other *loaded) bool { return other == l })
	if l.drafter != nil {
		f.drafts = 0
	}
	f.mu.Unlock()
	f.recount()
	f.widen()
}

// opened returns a loaded model for the catalog.
func (f *fleet) opened(l *loaded) *generate.Opened {
	return &generate.Opened{Model: l.generator, Plan: l.report.now, Close: func() {
		l.close()
		f.remove(l)
	}}
}

// loading returns the progress of reading a model ahead. It is complete if the model is no longer
// loaded.
func (f *fleet) loading(l *loaded) dispatch.Loading {
	loading := dispatch.Loading{Done: true}
	f.models.Each(func(m *generate.Model, _ func() any) {
		if m == l.generator {
			loading = l.model.Status().Loading
		}
	})
	return loading
}

// begin starts a model's background work once requests are accepted.
func (f *fleet) begin(l *loaded) {
	leaveRoomFor(l.model)
	host := l.model.Plan().Device(devicemap.CPU)
	l.model.FollowLimits(f.ctx, func(limit dispatch.MemoryLimit) {
		logLimit(limit)
		if limit.Bytes == host.LimitBytes { // its initial share
			limit.Bytes = f.start
		}
		f.setLimit(limit.Bytes, 0)
	})
	l.model.Promote(f.ctx)
	if !f.command.Lazy {
		l.report.start() // it measures the disk
	}
}

// limitHeap limits Go's memory to the plans' part for it, now and for models that are loaded later.
func (f *fleet) limitHeap(h heapLimit) {
	f.mu.Lock()
	f.heap = &h
	list := slices.Clone(f.loaded)
	f.mu.Unlock()
	for _, l := range list {
		h.fit(f.heapRow(l))
		h.follow(l.model)
	}
	if len(list) == 0 {
		h.fit(devicemap.DevicePlan{LimitBytes: f.limit, RuntimeBytes: dispatch.RuntimeBytes, RequestBytes: dispatch.RequestMemory(f.limit)})
	}
}

// threads returns the number of computing threads.
func (f *fleet) threads() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, l := range f.loaded {
		return l.model.Kernels().Threads
	}
	if n := f.request.options.Threads; n > 0 {
		return min(n, runtime.GOMAXPROCS(0))
	}
	return dispatch.DescribeHost().Threads
}
